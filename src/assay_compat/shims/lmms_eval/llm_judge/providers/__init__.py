"""Shim for `lmms_eval.llm_judge.providers`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    AsyncAzureOpenAIProvider,
    AsyncOpenAIProvider,
    AzureOpenAIProvider,
    BedrockProvider,
    DummyProvider,
    LocalProvider,
    OpenAIProvider,
)

__all__ = [
    "AsyncAzureOpenAIProvider",
    "AsyncOpenAIProvider",
    "AzureOpenAIProvider",
    "BedrockProvider",
    "DummyProvider",
    "LocalProvider",
    "OpenAIProvider",
]
