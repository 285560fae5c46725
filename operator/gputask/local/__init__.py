"""The embedded cluster: an in-memory Kubernetes API server on loopback and simulated nodes that run pods."""
