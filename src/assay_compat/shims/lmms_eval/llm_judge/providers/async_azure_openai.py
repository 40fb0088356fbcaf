"""Shim for `lmms_eval.llm_judge.providers.async_azure_openai`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    AsyncAzureOpenAIProvider,
)

__all__ = [
    "AsyncAzureOpenAIProvider",
]
