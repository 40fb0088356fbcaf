"""Shim for `lmms_eval.llm_judge.factory`."""

from __future__ import annotations

from assay_compat.llm_judge.factory import (
    ProviderFactory,
)

__all__ = [
    "ProviderFactory",
]
