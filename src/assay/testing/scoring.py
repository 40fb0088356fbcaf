"""Contract checks for filters and metrics.

from assay.testing import check_filter, check_metric

def test_my_filter_contract():
    check_filter(lambda: LastLine())

def test_my_metric_contract():
    check_metric(my_metric, right=("4", "4"), wrong=("4", "5"))
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from assay.core.ports import Filter
from assay.scoring.metrics import Metric
from assay.testing.violations import require

__all__ = ["check_filter", "check_metric"]

_RESPONSES: tuple[tuple[str, ...], ...] = (
    ("The answer is 4.\n#### 4", "5"),
    ("",),
    (" \n",),
    ("B) 1,000.50 <b>{{ 7 * 7 }}</b>",),
    ("ünï\x00 \u202e 答案",),
)


def check_filter(make: Callable[[], Filter], responses: Sequence[Sequence[Any]] = _RESPONSES) -> None:
    """Check the contract of the `Filter` protocol on some responses, including malformed ones.

    Raises:
        ContractViolation: The plugin violates the contract.
    """
    inputs = [list(values) for values in responses]
    documents: list[dict[str, Any]] = [
        {"question": f"What is {index}?", "answer": "4"} for index in range(len(inputs))
    ]
    given = copy.deepcopy((inputs, documents))
    together = list(make().apply(inputs, documents))
    require(len(together) == len(inputs), "the result must have one entry per document")
    require((inputs, documents) == given, "responses and documents must not be modified")
    require(
        list(make().apply(inputs, documents)) == together, "the same responses must give the same answers"
    )
    require(list(make().apply([], [])) == [], "no documents must give no answers")
    if getattr(make(), "per_document", False):
        alone = [
            next(iter(make().apply([values], [document])))
            for values, document in zip(inputs, documents, strict=True)
        ]
        require(alone == together, "with `per_document`, an answer must not depend on other documents")


def check_metric(
    metric: Metric | Callable[..., Any],
    right: tuple[Any, Any],
    wrong: tuple[Any, Any],
    *,
    higher_is_better: bool | None = None,
) -> None:
    """Check the contract of a per-document metric on a correct and a wrong (reference, prediction).

    Raises:
        ContractViolation: The plugin violates the contract.
    """
    function = metric.function if isinstance(metric, Metric) else metric
    higher = metric.higher_is_better if isinstance(metric, Metric) else higher_is_better is not False

    def value(pair: tuple[Any, Any]) -> float:
        references, predictions = [pair[0]], [pair[1]]
        before = copy.deepcopy((references, predictions))
        found = function(references=references, predictions=predictions)
        require((references, predictions) == before, "references and predictions must not be modified")
        if isinstance(found, dict):
            require(bool(found), "a mapping of values must not be empty")
            found = next(iter(found.values()))
        require(
            isinstance(found, (bool, int, float)) or hasattr(found, "__float__"),
            f"the value must be a number, not {found!r}",
        )
        number = float(found)
        require(math.isfinite(number), "the value must be finite")
        return number

    good, bad = value(right), value(wrong)
    require(good > bad if higher else good < bad, "a correct prediction must score better than a wrong one")
    require(value(right) == good, "the same prediction must get the same score")
    for hostile in ("", " ", "ünï\x00", "9" * 400):
        value((right[0], hostile))
