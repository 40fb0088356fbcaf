"""The documents of a class task as splits, loaded on first access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.tasks.data.rows import Rows, Split

__all__ = ["DocumentSplits"]

_SPLIT_NAMES = ("training", "validation", "test")


class DocumentSplits(Mapping[str, Split]):
    """The splits `training`, `validation` and `test` that the object has."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject
        self._loaded: dict[str, Split] = {}

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)  # without loading a split

    def __getitem__(self, name: str) -> Split:
        if name not in self:
            raise KeyError(name)
        if name not in self._loaded:
            rows = getattr(self._subject, f"{name}_docs")()
            self._loaded[name] = rows if hasattr(rows, "features") else Rows(rows)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in _SPLIT_NAMES if getattr(self._subject, f"has_{name}_docs")())

    def __len__(self) -> int:
        return sum(1 for _ in self)
