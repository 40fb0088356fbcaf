"""Shim for `lmms_eval.verifiers.pipeline`."""

from __future__ import annotations

from assay_compat.verifiers.pipeline import (
    VerificationPipeline,
)

__all__ = [
    "VerificationPipeline",
]
