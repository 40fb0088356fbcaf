"""Shim for `lmms_eval.verifiers.rule`."""

from __future__ import annotations

from assay_compat.verifiers.rule import (
    ContainsVerifier,
    ExactMatchVerifier,
    MCQMatchVerifier,
    NumericToleranceVerifier,
)

__all__ = [
    "ContainsVerifier",
    "ExactMatchVerifier",
    "MCQMatchVerifier",
    "NumericToleranceVerifier",
]
