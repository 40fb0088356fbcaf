"""Shim for `lmms_eval.verifiers.openai`."""

from __future__ import annotations

from assay_compat.verifiers.llm_verifier import (
    OpenAIVerifier,
)

__all__ = [
    "OpenAIVerifier",
]
