"""Shim for `lmms_eval.llm_judge.providers.dummy`."""

from __future__ import annotations

from assay_compat.llm_judge.providers import (
    DummyProvider,
)

__all__ = [
    "DummyProvider",
]
