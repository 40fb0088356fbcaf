"""Take the answer out, then say whether it is right: what `lmms_eval.verifiers` offers."""
