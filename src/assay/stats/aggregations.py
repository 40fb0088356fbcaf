"""Aggregations that a task file can name: functions from the values of all documents to one number.

A value is the score of one document, or for corpus metrics a pair such as (gold, prediction) or (log probability,
words).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.registry import Registry
from assay.stats.numerics.exact_summation import mean, sum_left_to_right

__all__ = ["AGGREGATIONS", "Aggregation", "accepts_any_sequence", "aggregate", "find_aggregation_name"]

Aggregation = Callable[[Sequence[Any]], Any]

AGGREGATIONS: Registry[Aggregation] = Registry(
    "aggregation", builtin_modules=("assay.stats.classification", "assay.stats.translation")
)
"""All aggregations that a `metric_list` entry can name."""

_BYPASS_VALUE = 999
"""The value of `bypass`: both harnesses print it for responses that are not scored."""


def aggregate(aggregation: str | Aggregation, values: Sequence[Any], *, where: str = "") -> Any:
    """Aggregate values with a named aggregation or a function.

    Raises:
        AssayError: There are no values.

    >>> aggregate("mean", [1.0, 0.0])
    0.5
    >>> aggregate(len, [1.0, 0.0])
    2
    """
    function = AGGREGATIONS.get(aggregation, where=where) if isinstance(aggregation, str) else aggregation
    if not len(values):
        raise AssayError("no document was scored, so there is nothing to aggregate", where=where)
    return function(values)


def find_aggregation_name(aggregation: str | Aggregation) -> str | None:
    """Return the registered name of an aggregation or of its function; None for functions of tasks.

    >>> find_aggregation_name(mean)
    'mean'
    """
    if isinstance(aggregation, str):
        return aggregation
    module = str(getattr(aggregation, "__module__", ""))
    if not module.startswith(__package__ or "assay.stats"):
        return None
    return next((name for name in AGGREGATIONS if AGGREGATIONS.get(name) is aggregation), None)


def accepts_any_sequence(aggregation: str | Aggregation) -> bool:
    """Whether an aggregation accepts any sequence: those of this package do, functions of tasks expect a list."""
    function = AGGREGATIONS.get(aggregation) if isinstance(aggregation, str) else aggregation
    return function in (min, max) or str(getattr(function, "__module__", "")).startswith("assay.stats.")


AGGREGATIONS.add("mean", mean)
AGGREGATIONS.add("sum", sum_left_to_right)
AGGREGATIONS.add("min", min)
AGGREGATIONS.add("max", max)


@AGGREGATIONS.register("std")
def population_deviation(values: Sequence[Any]) -> float:
    """Return the population standard deviation (with n in the denominator).

    >>> population_deviation([1.0, 3.0])
    1.0
    """
    middle = mean(values)
    return math.sqrt(sum_left_to_right([(value - middle) ** 2 for value in values]) / len(values))


@AGGREGATIONS.register("nanmean")
def nanmean(values: Sequence[Any]) -> float:
    """Return the mean of the values that are not NaN; NaN if all are.

    >>> nanmean([1.0, float("nan"), 0.0])
    0.5
    """
    if all(np.isnan(values)):
        return math.nan
    return float(np.nanmean(values))


@AGGREGATIONS.register("median")
def median(values: Sequence[Any]) -> Any:
    """Return the upper median, which is always one of the values.

    >>> median([4, 1, 3, 2])
    3
    """
    return sorted(values)[len(values) // 2]


@AGGREGATIONS.register("middle")
def middle(values: Sequence[Any]) -> Any:
    """Return the value in the middle of the list, in document order: what lmms_eval calls `median`.

    >>> middle([4, 1, 3, 2])
    3
    >>> middle([9, 1, 5])
    1
    """
    return values[len(values) // 2]


@AGGREGATIONS.register("perplexity")
def perplexity(values: Sequence[Any]) -> float:
    """Return exp of the mean negative log probability.

    >>> perplexity([0.0, 0.0])
    1.0
    """
    return math.exp(-mean(values))


@AGGREGATIONS.register("weighted_perplexity")
def weighted_perplexity(values: Sequence[tuple[Any, Any]]) -> float:
    """Return exp of the negative log probability per word or byte, over (log probability, count) pairs.

    >>> weighted_perplexity([(0.0, 3), (0.0, 5)])
    1.0
    """
    return math.exp(-_ratio(values))


@AGGREGATIONS.register("bits_per_byte")
def bits_per_byte(values: Sequence[tuple[Any, Any]]) -> float:
    """Return the negative log probability per byte in bits, over (log probability, bytes) pairs.

    >>> bits_per_byte([(-math.log(2), 1), (-math.log(2), 1)]), bits_per_byte([(0.0, 1)])
    (1.0, 0.0)
    """
    return float(-_ratio(values) / math.log(2)) + 0.0  # 0.0 instead of -0.0


@AGGREGATIONS.register("ratio")
def ratio(values: Sequence[tuple[Any, Any]]) -> float:
    """Return the sum of the first numbers divided by the sum of the second: errors per word for (errors, words) pairs.

    >>> ratio([(1, 4), (0, 4)])
    0.125
    """
    total = sum_left_to_right([bottom for _, bottom in values])
    if not total:
        raise AssayError("all references are empty, so the rate is undefined")
    return float(sum_left_to_right([top for top, _ in values]) / total)


@AGGREGATIONS.register("bypass")
def bypass(values: Sequence[Any]) -> int:
    """Return the placeholder value for responses that are not scored."""
    return _BYPASS_VALUE


@AGGREGATIONS.register("acc_all")
def acc_all(values: Sequence[tuple[Any, Any]]) -> float:
    """Return the fraction of questions with all answers correct, over (prediction, fields) pairs of MultiRC."""
    questions = _group_by_question(values, lambda index: (index["paragraph"], index["question"]))
    return float(np.mean([int(all(correct)) for correct in questions]))


def score_questions(values: Sequence[tuple[Any, Any]]) -> list[int]:
    """Return 0 or 1 per question number. Paragraphs share numbers, as in the published standard errors."""
    return [int(all(correct)) for correct in _group_by_question(values, lambda index: index["question"])]


def _group_by_question(values: Sequence[tuple[Any, Any]], key: Callable[[Any], Any]) -> list[list[bool]]:
    questions: dict[Any, list[bool]] = {}
    for prediction, fields in values:
        questions.setdefault(key(fields["idx"]), []).append((fields["label"] == 1) == prediction)
    return list(questions.values())


def _ratio(values: Sequence[tuple[Any, Any]]) -> Any:
    tops, bottoms = zip(*values, strict=True)
    return sum_left_to_right(tops) / sum_left_to_right(bottoms)
