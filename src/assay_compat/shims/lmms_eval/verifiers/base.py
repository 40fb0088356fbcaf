"""Shim for `lmms_eval.verifiers.base`."""

from __future__ import annotations

from assay_compat.verifiers.interfaces import (
    Extractor,
    Verifier,
    VerifyResult,
    parse_binary_response,
)

__all__ = [
    "Extractor",
    "Verifier",
    "VerifyResult",
    "parse_binary_response",
]
