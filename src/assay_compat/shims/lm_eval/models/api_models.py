"""Shim for `lm_eval.models.api_models`: the base class of models behind a server. The installed package takes precedence."""

from __future__ import annotations

from assay_compat.models.lm_eval_api_bases import JsonChatStr, TemplateAPI

__all__ = ["JsonChatStr", "TemplateAPI"]
