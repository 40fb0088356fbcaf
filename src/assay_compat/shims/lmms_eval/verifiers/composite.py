"""Shim for `lmms_eval.verifiers.composite`."""

from __future__ import annotations

from assay_compat.verifiers.composite import (
    CompositeVerifier,
)

__all__ = [
    "CompositeVerifier",
]
