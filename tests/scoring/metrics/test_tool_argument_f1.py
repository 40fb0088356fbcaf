from __future__ import annotations

import pytest

from assay.scoring.metrics import METRICS
from assay.scoring.metrics.tool_argument_f1 import tool_argument_f1
from assay.testing import check_metric


def test_contract() -> None:
    check_metric(
        METRICS.get("tool_argument_f1"), right=("[f(a=1)]", "[f(a=1)]"), wrong=("[f(a=1)]", "[g(a=1)]")
    )


@pytest.mark.parametrize(
    ("reference", "prediction", "expected"),
    [
        ("[f(a=1, b=2)]", "[f(a=1)]", 2 * 2 / 5),
        ("[f(a=1, b=2)]", "[f(a=1, b=3)]", 2 * 2 / 6),
        ("[f(a=1), f(a=2)]", "[f(a=2), f(a=3)]", 2 * 3 / 8),
        ("[f(a=1)]", "[f(a=1), g()]", 2 * 2 / 5),
        ("[]", "none", 1.0),
        ("[]", "[f()]", 0.0),
        ("[f()]", "none", 0.0),
        ("[f()]", '[{"name": "f", "arguments": "{"}]', 0.0),
    ],
)
def test_partial_credit(reference: str, prediction: str, expected: float) -> None:
    assert tool_argument_f1(references=[reference], predictions=[prediction]) == pytest.approx(expected)
