"""Shim for `lmms_eval.llm_judge.base`."""

from __future__ import annotations

from assay_compat.llm_judge.server import (
    AsyncServerInterface,
    ServerInterface,
)

__all__ = [
    "AsyncServerInterface",
    "ServerInterface",
]
