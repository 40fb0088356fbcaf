"""Shim for `lmms_eval.llm_judge.providers.azure_openai`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    AzureOpenAIProvider,
)

__all__ = [
    "AzureOpenAIProvider",
]
