"""The documents of a class task as splits, each asked for once and only when needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.tasks.rows import Rows, Split

__all__ = ["DocumentSplits"]

_NAMES = ("training", "validation", "test")


class DocumentSplits(Mapping[str, Split]):
    """`training`, `validation` and `test`, as far as the object says it has them."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject
        self._read: dict[str, Split] = {}

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)  # without reading any

    def __getitem__(self, name: str) -> Split:
        if name not in self:
            raise KeyError(name)
        if name not in self._read:
            rows = getattr(self._subject, f"{name}_docs")()
            self._read[name] = rows if hasattr(rows, "features") else Rows(rows)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in _NAMES if getattr(self._subject, f"has_{name}_docs")())

    def __len__(self) -> int:
        return sum(1 for _ in self)
