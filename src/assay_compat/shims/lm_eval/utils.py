"""Shim for `lm_eval.utils`: functions that task helpers use."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from assay_compat.commands.results_table import make_table

__all__ = [
    "eval_logger",
    "general_detokenize",
    "handle_non_serializable",
    "make_table",
    "logging",
    "weighted_f1_score",
]

eval_logger = logging.getLogger("lm_eval")

_CLOSED_UP = (" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"')


def general_detokenize(string: str) -> str:
    """Join the tokens of a Penn Treebank tokenizer."""
    for apart, together in _CLOSED_UP:
        string = string.replace(apart, together)
    return re.sub(r" (['.,])", r"\1", string)


def weighted_f1_score(items: Sequence[tuple[Any, Any]]) -> float:
    """Return the F1 score over (gold, prediction) pairs, weighted by class frequency."""
    from sklearn.metrics import f1_score

    golds, predictions = zip(*items, strict=True)
    return f1_score(golds, predictions, average="weighted")  # type: ignore[no-any-return]


def handle_non_serializable(value: Any) -> Any:
    """Convert a value that JSON does not support."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return list(value) if isinstance(value, set) else str(value)
