"""Stand-in for `lmms_eval.verifiers.openai`."""

from __future__ import annotations

from assay_compat.verifiers.judged import (
    OpenAIVerifier,
)

__all__ = [
    "OpenAIVerifier",
]
