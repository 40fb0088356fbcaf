"""Implementation of `lmms_eval.verifiers`: extract an answer and verify it."""
