"""Shim for `lmms_eval.loggers`."""
