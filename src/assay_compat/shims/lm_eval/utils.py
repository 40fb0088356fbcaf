"""Shim for `lm_eval.utils`: functions that task helpers use."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from assay_compat.commands.results_table import make_table
from assay_compat.models.request_batching import (
    Reorderer,
    get_rolling_token_windows,
    make_disjoint_window,
)

__all__ = [
    "Reorderer",
    "eval_logger",
    "general_detokenize",
    "get_file_datetime",
    "get_file_task_name",
    "get_latest_filename",
    "get_results_filenames",
    "get_rolling_token_windows",
    "get_sample_results_filenames",
    "handle_non_serializable",
    "make_disjoint_window",
    "make_table",
    "logging",
    "sanitize_model_name",
    "setup_logging",
    "simple_parse_args_string",
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


def setup_logging(verbosity: str | None = "INFO") -> None:
    """Log messages of this level and above; the environment variable `LMEVAL_LOG_LEVEL` takes precedence."""
    import os

    logging.basicConfig(level=(os.environ.get("LMEVAL_LOG_LEVEL") or verbosity or "INFO").upper())


def simple_parse_args_string(args_string: str | None) -> dict[str, Any]:
    """Parse `key=value,key=value`."""
    from assay.core.options.parsing import parse_arguments

    return dict(parse_arguments(args_string)) if args_string else {}


def get_results_filenames(filenames: Iterable[str]) -> list[str]:
    """Return the files with the results of a run."""
    return [name for name in filenames if PurePath(name).match("results_*.json")]


def get_sample_results_filenames(filenames: Iterable[str]) -> list[str]:
    """Return the files with the documents of a run."""
    return [name for name in filenames if PurePath(name).match("samples_*.json*")]


def get_file_task_name(filename: str) -> str:
    """Return the task of `samples_TASK_DATE.jsonl`."""
    return PurePath(filename).name.removeprefix("samples_").rpartition("_")[0]


def get_file_datetime(filename: str) -> str:
    """Return the date in the name of a results file; lm-eval keeps the ending `.json`."""
    return filename.rpartition("_")[2].removesuffix(".jsonl")


def get_latest_filename(filenames: Iterable[str]) -> str:
    """Return the file with the latest date in its name."""
    return max(filenames, key=get_file_datetime)


def sanitize_model_name(model_name: str) -> str:
    """Return the name of a model as a file name."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model_name)
