"""Shim for `lmms_eval.llm_judge.providers.async_openai`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    AsyncOpenAIProvider,
)

__all__ = [
    "AsyncOpenAIProvider",
]
