from __future__ import annotations

import pytest

from assay.core.errors import InvalidOption
from assay.core.options.run_spec import RunSpec
from assay.core.options.stop_rules import StopRule, parse_stop_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ci<=1.0", StopRule(points=1.0)),
        (" ci <= 2 ", StopRule(points=2.0)),
        ("gate:latest>=-1.5", StopRule(points=-1.5, baseline="latest")),
        ("gate:runs/a>b>=0", StopRule(points=0.0, baseline="runs/a>b")),
        ("acc_norm: ci<=1.0", StopRule(points=1.0, metric="acc_norm")),
        ("exact_match,strict-match:ci<=1.0", StopRule(points=1.0, metric="exact_match,strict-match")),
        ("acc: gate:model:x>=-1", StopRule(points=-1.0, baseline="model:x", metric="acc")),
        ("helpful: ci<=2 in 1..10", StopRule(points=2.0, metric="helpful", limits=(1.0, 10.0))),
        ("ci<=2 in -1.5..1.5", StopRule(points=2.0, limits=(-1.5, 1.5))),
    ],
)
def test_rules_are_read(text: str, rule: StopRule) -> None:
    assert parse_stop_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ci",
        "ci<=",
        "ci<=0",
        "ci<=60",
        "ci>=1",
        "gate:>=1",
        "gate:a>=200",
        "ci<=1.2.3",
        "ci<=1 in 5..1",
        "ci<=1 in 3",
        "a b: ci<=1",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption) as error:
        parse_stop_rule(text)
    assert "ci<=1.0" in error.value.hint or "smaller number first" in error.value.hint


def test_a_stop_rule_needs_scores() -> None:
    with pytest.raises(InvalidOption, match="needs scores"):
        RunSpec(stop_when="ci<=1", predict_only=True)
