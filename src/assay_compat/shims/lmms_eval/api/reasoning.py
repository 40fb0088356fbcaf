"""Shim for `lmms_eval.api.reasoning`."""

from __future__ import annotations

from assay.scoring.filters.transformation import strip_thinking as strip_reasoning_tags

__all__ = ["strip_reasoning_tags"]
