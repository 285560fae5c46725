"""Kubernetes objects in the planner's words: the one way through, for the operator and for files."""
