"""The largest number of tokens that a call can generate, reasoning included: what a cost limit has to reserve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.core.records.requests import Settings
from assay.models.remote.options import Options
from assay.models.remote.protocol.chat import select_extra_settings

__all__ = ["compute_output_limit"]

_LIMIT_KEYS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
_REASONING_KEYS = ("budget_tokens", "thinking_budget", "thinkingBudget", "thinking_token_budget")
_COUNT_KEYS = ("n", "best_of")


def compute_output_limit(settings: Settings, options: Options, *, thinking_tokens: int = 0) -> int | None:
    """Return the output limit of a call with these settings; None if `extra_body` removes it.

    Fields of `extra_body` replace those of the request or come in addition, depending on the server: the larger limit counts.

    >>> compute_output_limit(Settings({"max_gen_toks": 100}), Options(extra_body={"max_tokens": 8000, "n": 2}))
    16000
    """
    limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
    fields = {**select_extra_settings(settings), **options.extra_body}
    config = fields.get("generationConfig")
    if isinstance(config, Mapping) and config.get("maxOutputTokens") is None:
        return None  # replaces the whole object, with its limit
    found = [value for key, value in _walk(fields) if key in _LIMIT_KEYS]
    if any(not _is_count(value) for value in found):
        return None
    budgets = [] if settings.thinking_budget is None else [settings.thinking_budget]
    budgets += [value for key, value in _walk(fields) if key in _REASONING_KEYS and _is_count(value)]
    reasoning = fields.get("reasoning")
    if isinstance(reasoning, Mapping) and _is_count(reasoning.get("max_tokens")):
        budgets.append(reasoning["max_tokens"])
    answers = 1
    for key in _COUNT_KEYS:
        if _is_count(fields.get(key)):
            answers = max(answers, fields[key])
    return int(answers * (max([limit, *found]) + max([thinking_tokens, *budgets])))


def _walk(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested fields."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            if key != "reasoning":
                yield from _walk(value)
        else:
            yield key, value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
