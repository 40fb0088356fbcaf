"""Filters that select among the repeats of one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from assay.core.errors import TaskError
from assay.scoring.filters import FILTERS

__all__ = ["MajorityVote", "TakeFirst", "TakeFirstK"]


@FILTERS.register("take_first")
class TakeFirst:
    """Keep the first value and unpack it.

    >>> TakeFirst().apply([["a", "b"], ["c"]], [{}, {}])
    ['a', 'c']
    """

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        return [values[0] for values in responses]


@FILTERS.register("take_first_k")
class TakeFirstK:
    """Keep the first `k` values.

    >>> TakeFirstK(k=2).apply([["a", "b", "c"]], [{}])
    [['a', 'b']]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, k: int, **_: Any) -> None:
        self.k = k

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        if len(responses) and len(responses[0]) < self.k:
            raise TaskError(
                f"`take_first_k` needs {self.k} responses per document, but there are {len(responses[0])}",
                hint=f"set `repeats` of the task to at least {self.k}",
            )
        return [values[: self.k] for values in responses]


@FILTERS.register("majority_vote")
class MajorityVote:
    """Keep the most frequent value. Of equally frequent values, keep the first.

    >>> MajorityVote().apply([["4", "5", "5"]], [{}])
    [['5']]
    """

    per_document: ClassVar[bool] = True

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        return [[Counter(values).most_common(1)[0][0]] for values in responses]
