"""The objects users and the operator exchange: models of GpuTask and GpuNode, names, conditions, CRD generation."""
