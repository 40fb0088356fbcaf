"""Shim for `transformers.data`."""
