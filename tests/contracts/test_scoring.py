"""Contract of filters and metrics: built-in ones satisfy it, and violations are detected."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.testing import ContractViolation, check_filter, check_metric

FILTER_NAMES = ("lowercase", "uppercase", "remove_whitespace", "take_first")


@pytest.mark.parametrize("name", FILTER_NAMES)
def test_built_in_filter_satisfies_the_contract(name: str) -> None:
    check_filter(lambda: FILTERS.get(name)())


@pytest.mark.parametrize("name", ["exact_match", "anls"])
def test_built_in_metric_satisfies_the_contract(name: str) -> None:
    check_metric(METRICS.get(name), right=("four", "four"), wrong=("four", "seventeen"))


class DropsADocument:
    def apply(self, responses: Any, documents: Any) -> Any:
        return responses[:-1]


class ModifiesItsInput:
    def apply(self, responses: Any, documents: Any) -> Any:
        responses[0][0] = "changed"
        return responses


class DependsOnOtherDocuments:
    per_document = True

    def apply(self, responses: Any, documents: Any) -> Any:
        return [[str(len(responses))] for _ in responses]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (DropsADocument, "one entry per document"),
        (ModifiesItsInput, "must not be modified"),
        (DependsOnOtherDocuments, "must not depend on other"),
    ],
)
def test_violation_of_a_filter_is_reported(broken: Any, message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        check_filter(broken)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda references, predictions: "good", "must be a number"),
        (lambda references, predictions: float("nan"), "must be finite"),
        (lambda references, predictions: 0.5, "score better"),
        (lambda references, predictions: predictions.append(1) or 1.0, "must not be modified"),
    ],
)
def test_violation_of_a_metric_is_reported(value: Any, message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        check_metric(value, right=("a", "a"), wrong=("a", "b"))
