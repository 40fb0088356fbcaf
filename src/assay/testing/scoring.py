"""What every filter and every metric promises, as checks that plugin authors can run over theirs.

from assay.testing import check_filter, check_metric

def test_my_filter_keeps_the_contract():
    check_filter(lambda: LastLine())

def test_my_metric_keeps_the_contract():
    check_metric(my_metric, right=("4", "4"), wrong=("4", "5"))
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from assay.core.ports import Filter
from assay.scoring.metrics import Metric
from assay.testing.contracts import ContractBroken

__all__ = ["check_filter", "check_metric"]

_RESPONSES: tuple[tuple[str, ...], ...] = (
    ("The answer is 4.\n#### 4", "5"),
    ("",),
    (" \n",),
    ("B) 1,000.50 <b>{{ 7 * 7 }}</b>",),
    ("ünï\x00 \u202e 答案",),
)


def check_filter(make: Callable[[], Filter], responses: Sequence[Sequence[Any]] = _RESPONSES) -> None:
    """Try the promises of the `Filter` port on some responses, those nobody wants among them.

    Raises:
        ContractBroken: The first promise that is not kept.
    """
    asked = [list(values) for values in responses]
    documents: list[dict[str, Any]] = [
        {"question": f"What is {at}?", "answer": "4"} for at in range(len(asked))
    ]
    given = copy.deepcopy((asked, documents))
    together = list(make().apply(asked, documents))
    _say(len(together) == len(asked), "there is an entry for each document")
    _say((asked, documents) == given, "neither the responses nor the documents are changed")
    _say(list(make().apply(asked, documents)) == together, "the same responses give the same answers")
    _say(list(make().apply([], [])) == [], "no documents are no answers")
    if getattr(make(), "per_document", False):
        alone = [
            next(iter(make().apply([values], [document])))
            for values, document in zip(asked, documents, strict=True)
        ]
        _say(alone == together, "with `per_document`, a document's answer does not depend on the others")


def check_metric(
    metric: Metric | Callable[..., Any],
    right: tuple[Any, Any],
    wrong: tuple[Any, Any],
    *,
    higher_is_better: bool | None = None,
) -> None:
    """Try what is promised of a metric of single documents, on a (reference, prediction) that is right and one that is wrong.

    Raises:
        ContractBroken: The first promise that is not kept.
    """
    function = metric.function if isinstance(metric, Metric) else metric
    higher = metric.higher_is_better if isinstance(metric, Metric) else higher_is_better is not False

    def value(pair: tuple[Any, Any]) -> float:
        references, predictions = [pair[0]], [pair[1]]
        before = copy.deepcopy((references, predictions))
        found = function(references=references, predictions=predictions)
        _say((references, predictions) == before, "neither references nor predictions are changed")
        if isinstance(found, dict):
            _say(bool(found), "a mapping of numbers is not empty")
            found = next(iter(found.values()))
        _say(
            isinstance(found, (bool, int, float)) or hasattr(found, "__float__"),
            f"the value is a number, not {found!r}",
        )
        number = float(found)
        _say(math.isfinite(number), "the value is finite")
        return number

    good, bad = value(right), value(wrong)
    _say(good > bad if higher else good < bad, "what is right is worth more than what is wrong")
    _say(value(right) == good, "the same answer is worth the same")
    for hostile in ("", " ", "ünï\x00", "9" * 400):
        value((right[0], hostile))


def _say(kept: bool, promise: str) -> None:
    if not kept:
        raise ContractBroken(promise)
