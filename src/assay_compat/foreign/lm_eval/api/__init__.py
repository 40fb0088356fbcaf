"""Stand-in for `lm_eval.api`."""
