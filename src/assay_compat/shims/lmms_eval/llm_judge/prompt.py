"""Shim for `lmms_eval.llm_judge.prompt`."""

from __future__ import annotations

from assay_compat.llm_judge.prompts import (
    BINARY_JUDGE_PROMPT,
    COMPARATIVE_JUDGE_PROMPT,
    CORRECTNESS_JUDGE_PROMPT,
)

__all__ = [
    "BINARY_JUDGE_PROMPT",
    "COMPARATIVE_JUDGE_PROMPT",
    "CORRECTNESS_JUDGE_PROMPT",
]
