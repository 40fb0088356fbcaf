"""Shim for `lmms_eval.api`."""
