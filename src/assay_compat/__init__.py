"""Foreign import names: what task helpers import from `lm_eval` and `lmms_eval`. Found through an entry point."""
