"""Shim for `lm_eval.api.model`: the base classes of model classes. The installed package takes precedence."""

from __future__ import annotations

from assay_compat.models.lm_eval_bases import LM, CacheHook, CachingLM, TemplateLM

__all__ = ["LM", "CacheHook", "CachingLM", "TemplateLM"]
