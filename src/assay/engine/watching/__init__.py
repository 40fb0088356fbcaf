"""Watches a training run: finds finished checkpoints and evaluates each of them once."""
