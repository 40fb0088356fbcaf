"""Filters and metrics: the checks find what they should, and what ships passes them."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.testing import ContractBroken, check_filter, check_metric

SIMPLE = ("lowercase", "uppercase", "remove_whitespace", "take_first")


@pytest.mark.parametrize("name", SIMPLE)
def test_filters_that_ship_keep_the_contract(name: str) -> None:
    check_filter(lambda: FILTERS.get(name)())


@pytest.mark.parametrize("name", ["exact_match", "anls"])
def test_metrics_that_ship_keep_the_contract(name: str) -> None:
    check_metric(METRICS.get(name), right=("four", "four"), wrong=("four", "seventeen"))


class Forgets:
    def apply(self, responses: Any, documents: Any) -> Any:
        return responses[:-1]


class Changes:
    def apply(self, responses: Any, documents: Any) -> Any:
        responses[0][0] = "changed"
        return responses


class Peeks:
    per_document = True

    def apply(self, responses: Any, documents: Any) -> Any:
        return [[str(len(responses))] for _ in responses]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [(Forgets, "an entry for each"), (Changes, "are changed"), (Peeks, "does not depend on the others")],
)
def test_a_filter_that_breaks_a_promise_is_found(broken: Any, promise: str) -> None:
    with pytest.raises(ContractBroken, match=promise):
        check_filter(broken)


@pytest.mark.parametrize(
    ("value", "promise"),
    [
        (lambda references, predictions: "good", "is a number"),
        (lambda references, predictions: float("nan"), "is finite"),
        (lambda references, predictions: 0.5, "worth more"),
        (lambda references, predictions: predictions.append(1) or 1.0, "are changed"),
    ],
)
def test_a_metric_that_breaks_a_promise_is_found(value: Any, promise: str) -> None:
    with pytest.raises(ContractBroken, match=promise):
        check_metric(value, right=("a", "a"), wrong=("a", "b"))
