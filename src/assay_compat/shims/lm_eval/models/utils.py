"""Shim for `lm_eval.models.utils`: batching for model classes. The installed package takes precedence."""

from __future__ import annotations

from assay_compat.models.request_batching import (
    Collator,
    chunks,
    handle_stop_sequences,
    postprocess_generated_text,
)

__all__ = ["Collator", "chunks", "handle_stop_sequences", "postprocess_generated_text"]
