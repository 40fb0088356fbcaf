"""Shim for `lmms_eval.filters`."""

from __future__ import annotations

from lmms_eval.api.filter import Filter

__all__ = ["Filter"]
