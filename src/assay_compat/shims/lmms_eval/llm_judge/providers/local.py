"""Shim for `lmms_eval.llm_judge.providers.local`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    LocalProvider,
)

__all__ = [
    "LocalProvider",
]
