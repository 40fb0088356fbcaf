"""Sinks that report a run to an experiment tracker: Weights & Biases, trackio and MLflow."""
