"""Shim for `lm_eval.filters`."""
