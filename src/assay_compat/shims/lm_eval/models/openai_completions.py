"""Shim for `lm_eval.models.openai_completions`: classes for servers with OpenAI's API. The installed package takes precedence."""

from __future__ import annotations

from assay_compat.models.lm_eval_openai_bases import LocalChatCompletion, LocalCompletionsAPI

__all__ = ["LocalChatCompletion", "LocalCompletionsAPI"]
