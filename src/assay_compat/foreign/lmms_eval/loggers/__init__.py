"""Stand-in for `lmms_eval.loggers`."""
