"""Shim for `lmms_eval.api.model`: the base class of model classes. The installed package takes precedence."""

from __future__ import annotations

from assay_compat.models.lmms_eval_bases import CacheHook, lmms

__all__ = ["CacheHook", "lmms"]
