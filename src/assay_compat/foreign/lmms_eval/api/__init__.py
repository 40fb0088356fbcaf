"""Stand-in for `lmms_eval.api`."""
