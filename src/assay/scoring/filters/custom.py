"""A filter that calls a function of the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from assay.scoring.filters import FILTERS

__all__ = ["Custom"]


@FILTERS.register("custom")
class Custom:
    """Call `filter_fn(responses, documents)` with all documents of the task.

    >>> Custom(filter_fn=lambda responses, documents: [values[-1] for values in responses]).apply([[1, 2]], [{}])
    [2]
    """

    per_document: ClassVar[bool] = False

    def __init__(self, filter_fn: Callable[[Sequence[Any], Sequence[Any]], Any], **_: Any) -> None:
        self.filter_fn = filter_fn

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> Any:
        return self.filter_fn(responses, documents)
