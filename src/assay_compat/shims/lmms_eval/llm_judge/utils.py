"""Shim for `lmms_eval.llm_judge.utils`."""

from __future__ import annotations

from assay_compat.llm_judge.prompts import (
    JudgePromptBuilder,
    ResponseParser,
)

__all__ = [
    "JudgePromptBuilder",
    "ResponseParser",
]
