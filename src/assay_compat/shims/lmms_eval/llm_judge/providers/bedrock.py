"""Shim for `lmms_eval.llm_judge.providers.bedrock`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    BedrockProvider,
)

__all__ = [
    "BedrockProvider",
]
