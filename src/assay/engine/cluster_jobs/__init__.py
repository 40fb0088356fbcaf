"""Job files that start a Ray cluster and a run on it: SLURM and Kubernetes. Nothing here talks to a cluster."""
