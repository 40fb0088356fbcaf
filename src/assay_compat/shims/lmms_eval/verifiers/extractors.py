"""Shim for `lmms_eval.verifiers.extractors`."""

from __future__ import annotations

from assay_compat.verifiers.extractors import (
    MCQExtractor,
    NumberExtractor,
    RegexExtractor,
    StripExtractor,
    StripReasoningExtractor,
)

__all__ = [
    "MCQExtractor",
    "NumberExtractor",
    "RegexExtractor",
    "StripExtractor",
    "StripReasoningExtractor",
]
