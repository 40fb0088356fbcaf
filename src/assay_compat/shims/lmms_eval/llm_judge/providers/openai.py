"""Shim for `lmms_eval.llm_judge.providers.openai`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    OpenAIProvider,
)

__all__ = [
    "OpenAIProvider",
]
