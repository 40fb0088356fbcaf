"""A filter that calls a function of the task for each response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from assay.scoring.filters import FILTERS

__all__ = ["Call"]


@FILTERS.register("call")
class Call:
    """Replace each response by `text_fn(response)`.

    >>> Call(text_fn=str.upper).apply([["a", "b"]], [{}])
    [['A', 'B']]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, text_fn: Callable[[Any], Any]) -> None:
        self.text_fn = text_fn

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        return [[self.text_fn(value) for value in values] for values in responses]
