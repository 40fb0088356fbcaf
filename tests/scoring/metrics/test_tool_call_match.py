from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import TaskError
from assay.scoring.metrics import METRICS
from assay.scoring.metrics.tool_call_match import tool_call_match
from assay.testing import check_metric


def test_contract() -> None:
    check_metric(
        METRICS.get("tool_call_match"), right=("[f(a=1)]", "[f(a=1)]"), wrong=("[f(a=1)]", "[f(a=2)]")
    )


CASES: list[tuple[str, str, dict[str, Any], float]] = [
    ("[f(a=1), g(b='x')]", "[g(b='x'), f(a=1.0)]", {}, 1.0),
    ("[f(a=1), g(b='x')]", "[g(b='x'), f(a=1)]", {"ordered": True}, 0.0),
    ("[f(a=1), f(a=1)]", "[f(a=1)]", {}, 0.0),
    ("[f(a=1), f(a=1)]", "[f(a=1), f(a=2)]", {}, 0.0),
    ("[f(a=1)]", "[f(a=1, b=2)]", {}, 0.0),
    ("[f(a='New York')]", "[f(a='new york')]", {}, 0.0),
    ("[f(a='New York')]", "[f(a='new york')]", {"mode": "ast"}, 1.0),
    ("[f(a=1)]", "[f(a='1')]", {"mode": "ast"}, 0.0),
    ("[f(a=1)]", "[g(), f(a=1, b=2)]", {"mode": "subset"}, 1.0),
    ("[f(a=1), f(b=2)]", "[f(a=1, b=2), f(a=1)]", {"mode": "subset"}, 1.0),
    ("[f(a=1), f(b=2)]", "[f(a=1, b=2)]", {"mode": "subset"}, 0.0),
    ("[f(), g()]", "[g(), h(), f()]", {"mode": "subset", "ordered": True}, 0.0),
    ("[]", "I cannot do that.", {}, 1.0),
    ("[]", "[f()]", {}, 0.0),
    ("[f()]", "I cannot do that.", {}, 0.0),
    ("[f()]", '[{"name": "f", "arguments": "{"}]', {}, 0.0),
]


@pytest.mark.parametrize(("reference", "prediction", "arguments", "expected"), CASES)
def test_calls_are_matched(
    reference: str, prediction: str, arguments: dict[str, Any], expected: float
) -> None:
    assert tool_call_match(references=[reference], predictions=[prediction], **arguments) == expected


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(TaskError, match="invalid `mode`"):
        tool_call_match(references=["[]"], predictions=[""], mode="fuzzy")
