"""How much of a document's prompt the model read, if the prompt exceeded the context length."""

from __future__ import annotations

from collections.abc import Sequence

from assay.store.documents.details import RequestRecord

__all__ = ["describe_truncation"]


def describe_truncation(requests: Sequence[RequestRecord]) -> str:
    """Return how much of its most truncated prompt the model has read; empty if it has read all of them.

    `the model read the last 44 of 1345 tokens`
    """
    usages = [
        one.response.usage for one in requests if one.response is not None and one.response.usage is not None
    ]
    worst = max(usages, key=lambda usage: usage.truncated_tokens, default=None)
    if worst is None or not worst.truncated_tokens:
        return ""
    kept = worst.input_tokens
    return f"the model read the last {kept} of {kept + worst.truncated_tokens} tokens"
