"""What nodes have and pods ask for: amounts, pools, devices, declarations. Knows nothing of Kubernetes clients."""
