"""Shim for lmms-eval: the names its task helpers import."""
