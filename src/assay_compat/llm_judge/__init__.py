"""Helpers that judge by themselves, as `lmms_eval.llm_judge` lets them, over Assay's machinery."""
