"""Implementation of `lmms_eval.llm_judge`, which lets task helpers call a judge."""
