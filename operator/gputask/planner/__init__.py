"""The planner: pure, deterministic; no Kubernetes, no clock, no I/O (design, section 5)."""
