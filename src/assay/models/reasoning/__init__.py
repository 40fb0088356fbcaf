"""Separates the reasoning of a model from its answer, for local and remote models alike."""

from __future__ import annotations

from assay.models.reasoning.formats import (
    FORMATS,
    ReasoningFormat,
    SplitText,
    TaggedReasoning,
    detect_format,
    split_known_format,
)
from assay.models.reasoning.splitter import ReasoningSplitter

__all__ = [
    "FORMATS",
    "ReasoningFormat",
    "ReasoningSplitter",
    "SplitText",
    "TaggedReasoning",
    "detect_format",
    "split_known_format",
]
