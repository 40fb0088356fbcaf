"""Shim for lm-evaluation-harness: the names its task helpers import."""
