"""The indexed attributes of all documents of a run, as NumPy columns for fast filters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from assay.core.records.endings import ENDINGS

__all__ = ["MAX_CATEGORY_VALUES", "MAX_METRICS", "OUTCOMES", "Category", "Columns", "is_perplexity"]

OUTCOMES = (*ENDINGS, "open")
"""Outcomes of documents; `open` is unfinished."""

MAX_METRICS = 4
"""Number of metrics per task whose scores are indexed."""

MAX_CATEGORY_VALUES = 120
"""A field with more values is not a category."""

FORMAT = 6


def is_perplexity(metric: str) -> bool:
    """Return whether a metric has no best value, so that a document is neither right nor wrong."""
    return "perplexity" in metric or "bits_per" in metric


@dataclass(slots=True)
class Category:
    """A field of the documents with few distinct values."""

    values: dict[str, int] = field(default_factory=dict)
    """Code of each value; documents without a value have -1."""

    codes: NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))


@dataclass(slots=True, kw_only=True)
class Columns:
    """One entry per document, in journal order."""

    tasks: list[str] = field(default_factory=list)
    metrics: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """(pipeline, metric) of each score column, by task."""

    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Row ids in the journal."""

    task: NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))
    position: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Indices of the documents in their tasks."""

    outcome: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    scores: NDArray[np.float64] = field(default_factory=lambda: np.empty((MAX_METRICS, 0)))
    """NaN for documents without a score."""

    length: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Total number of characters of the responses."""

    categories: dict[str, Category] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def concatenate(self, more: Columns) -> Columns:
        """Return these columns followed by others with the same tasks."""
        both = {
            name: np.concatenate((getattr(self, name), getattr(more, name)), axis=-1)
            for name in ("ids", "task", "position", "outcome", "scores", "length")
        }
        categories = {}
        for name in dict.fromkeys((*self.categories, *more.categories)):
            one, other = self.categories.get(name), more.categories.get(name)
            known = other or one
            assert known is not None
            codes = [
                part.codes if part is not None else np.full(length, -1, np.int16)
                for part, length in ((one, len(self)), (other, len(more)))
            ]
            categories[name] = Category(known.values, np.concatenate(codes))
        return replace(self, **both, tasks=more.tasks, metrics=more.metrics, categories=categories)

    def replace_rows(self, rows: NDArray[np.int64], more: Columns) -> Columns:
        """Return a copy with new values for some rows."""
        changed: dict[str, Any] = {}
        for name in ("outcome", "length", "scores"):
            column = getattr(self, name).copy()
            column[..., rows] = getattr(more, name)
            changed[name] = column
        return replace(self, **changed, tasks=more.tasks, metrics=more.metrics)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store."""
        arrays: dict[str, NDArray[Any]] = {
            name: getattr(self, name) for name in ("ids", "task", "position", "outcome", "scores", "length")
        }
        for number, category in enumerate(self.categories.values()):
            arrays[f"category{number}"] = category.codes
        return arrays

    def to_metadata(self) -> dict[str, Any]:
        """Return everything but the arrays, as JSON types."""
        return {
            "tasks": self.tasks,
            "metrics": self.metrics,
            "categories": {name: list(category.values) for name, category in self.categories.items()},
        }

    @classmethod
    def from_stored(cls, names: dict[str, Any], numbers: Any) -> Columns:
        """Restore columns from `to_metadata` and `to_arrays`."""
        categories = {
            name: Category({value: code for code, value in enumerate(values)}, numbers[f"category{number}"])
            for number, (name, values) in enumerate(names["categories"].items())
        }
        return cls(
            tasks=names["tasks"],
            metrics={task: [(one[0], one[1]) for one in listed] for task, listed in names["metrics"].items()},
            categories=categories,
            **{name: numbers[name] for name in ("ids", "task", "position", "outcome", "scores", "length")},
        )


def write_columns(path: Path, names: dict[str, Any], numbers: dict[str, NDArray[Any]]) -> None:
    """Write an index atomically."""
    temporary = path.with_suffix(".new.npz")
    text = np.frombuffer(json.dumps({"format": FORMAT, **names}).encode(), dtype=np.uint8)
    np.savez(temporary, names=text, **numbers)  # type: ignore[arg-type, unused-ignore]
    temporary.replace(path)


def read_columns(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Read a stored index; None if it is missing, damaged or of another format."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            numbers = {name: file[name] for name in file.files}
        names = json.loads(numbers.pop("names").tobytes())
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return (names, numbers) if names.get("format") == FORMAT else None
