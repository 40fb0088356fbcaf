"""Shim for `lm_eval.api`."""
