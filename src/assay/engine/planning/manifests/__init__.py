"""What identifies a run: its manifest, environment and name, and the manifests of stored runs."""
