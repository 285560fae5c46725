"""GpuTask: a Kubernetes operator and scheduler extender for GPU work."""

__version__ = "0.1.0"
