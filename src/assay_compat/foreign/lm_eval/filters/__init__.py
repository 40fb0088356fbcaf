"""Stand-in for `lm_eval.filters`."""
