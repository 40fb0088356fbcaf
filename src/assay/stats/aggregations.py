"""From the values of all documents to one number: the aggregations a task file can name.

A value is what a metric left of one document: a number, or for corpus metrics a pair such as
(gold, prediction) or (log-probability, words). Nothing here knows where it came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.registry import Registry
from assay.stats.sums import left_sum, mean

__all__ = ["AGGREGATIONS", "Aggregation", "aggregate", "aggregation_name", "is_ours"]

Aggregation = Callable[[Sequence[Any]], Any]

AGGREGATIONS: Registry[Aggregation] = Registry(
    "aggregation", builtin_modules=("assay.stats.classification", "assay.stats.translation")
)
"""Every aggregation a `metric_list` entry can name."""

_NOT_COMPUTED = 999
"""What `bypass` reports: the number both harnesses print for responses nobody scored."""


def aggregate(aggregation: str | Aggregation, values: Sequence[Any], *, where: str = "") -> Any:
    """Sum up the values with a named aggregation or a task's own function.

    Raises:
        AssayError: There are no values. An empty mean is not zero.

    >>> aggregate("mean", [1.0, 0.0])
    0.5
    >>> aggregate(len, [1.0, 0.0])
    2
    """
    function = AGGREGATIONS.get(aggregation, where=where) if isinstance(aggregation, str) else aggregation
    if not len(values):
        raise AssayError("no document was scored, so there is nothing to sum up", where=where)
    return function(values)


def aggregation_name(aggregation: str | Aggregation) -> str | None:
    """The registered name of an aggregation, also when its function was handed over; None for a foreign one.

    >>> aggregation_name(mean)
    'mean'
    """
    if isinstance(aggregation, str):
        return aggregation
    own = str(getattr(aggregation, "__module__", ""))
    if not own.startswith(__package__ or "assay.stats"):
        return None
    return next((name for name in AGGREGATIONS if AGGREGATIONS.get(name) is aggregation), None)


def is_ours(aggregation: str | Aggregation) -> bool:
    """Whether an aggregation is one of this package, which takes any sequence of values; others expect a list."""
    function = AGGREGATIONS.get(aggregation) if isinstance(aggregation, str) else aggregation
    return function in (min, max) or str(getattr(function, "__module__", "")).startswith("assay.stats.")


AGGREGATIONS.add("mean", mean)
AGGREGATIONS.add("sum", left_sum)
AGGREGATIONS.add("min", min)
AGGREGATIONS.add("max", max)


@AGGREGATIONS.register("std")
def deviation(values: Sequence[Any]) -> float:
    """How far the values spread around their mean (n below the line: it describes these values, no others).

    >>> deviation([1.0, 3.0])
    1.0
    """
    middle = mean(values)
    return math.sqrt(left_sum([(value - middle) ** 2 for value in values]) / len(values))


@AGGREGATIONS.register("nanmean")
def nanmean(values: Sequence[Any]) -> float:
    """The mean of the values that are numbers; NaN when none is.

    >>> nanmean([1.0, float("nan"), 0.0])
    0.5
    """
    if all(np.isnan(values)):
        return math.nan
    return float(np.nanmean(values))


@AGGREGATIONS.register("median")
def median(values: Sequence[Any]) -> Any:
    """The upper median: always one of the values.

    >>> median([4, 1, 3, 2])
    3
    """
    return sorted(values)[len(values) // 2]


@AGGREGATIONS.register("perplexity")
def perplexity(values: Sequence[Any]) -> float:
    """exp of the mean negative log-probability.

    >>> perplexity([0.0, 0.0])
    1.0
    """
    return math.exp(-mean(values))


@AGGREGATIONS.register("weighted_perplexity")
def weighted_perplexity(values: Sequence[tuple[Any, Any]]) -> float:
    """exp of the negative log-probability per word or byte, over (log-probability, count) pairs.

    >>> weighted_perplexity([(0.0, 3), (0.0, 5)])
    1.0
    """
    return math.exp(-_ratio(values))


@AGGREGATIONS.register("bits_per_byte")
def bits_per_byte(values: Sequence[tuple[Any, Any]]) -> float:
    """Negative log-probability per byte, in bits, over (log-probability, bytes) pairs.

    >>> bits_per_byte([(-math.log(2), 1), (-math.log(2), 1)]), bits_per_byte([(0.0, 1)])
    (1.0, 0.0)
    """
    return float(-_ratio(values) / math.log(2)) + 0.0  # a sure model needs 0 bits, not -0


@AGGREGATIONS.register("ratio")
def ratio(values: Sequence[tuple[Any, Any]]) -> float:
    """The sum of the first numbers over the sum of the second ones: errors per word, of (errors, words) pairs.

    >>> ratio([(1, 4), (0, 4)])
    0.125
    """
    whole = left_sum([bottom for _, bottom in values])
    if not whole:
        raise AssayError("the references are empty, so there is no rate")
    return float(left_sum([top for top, _ in values]) / whole)


@AGGREGATIONS.register("bypass")
def bypass(values: Sequence[Any]) -> int:
    """Responses that were asked for, not scored."""
    return _NOT_COMPUTED


@AGGREGATIONS.register("acc_all")
def acc_all(values: Sequence[tuple[Any, Any]]) -> float:
    """The share of questions whose answers are all right, over (prediction, fields) pairs as MultiRC has them."""
    questions = _by_question(values, lambda place: (place["paragraph"], place["question"]))
    return float(np.mean([int(all(marks)) for marks in questions]))


def acc_all_marks(values: Sequence[tuple[Any, Any]]) -> list[int]:
    """One 0 or 1 per question number. Paragraphs share numbers; the published standard errors count so too."""
    return [int(all(marks)) for marks in _by_question(values, lambda place: place["question"])]


def _by_question(values: Sequence[tuple[Any, Any]], key: Callable[[Any], Any]) -> list[list[bool]]:
    questions: dict[Any, list[bool]] = {}
    for prediction, fields in values:
        questions.setdefault(key(fields["idx"]), []).append((fields["label"] == 1) == prediction)
    return list(questions.values())


def _ratio(values: Sequence[tuple[Any, Any]]) -> Any:
    tops, bottoms = zip(*values, strict=True)
    return left_sum(tops) / left_sum(bottoms)
