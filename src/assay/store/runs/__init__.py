"""Runs on disk: reading, finding, repairing, tagging and importing them."""
