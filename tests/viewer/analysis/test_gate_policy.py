"""Policy files of a gate."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.viewer.analysis.gate_policy import GateOptions, GateRule, parse_policy


def test_a_policy_has_rules_with_tiers() -> None:
    policy = {
        "baseline": ["main-1", "main-2"],
        "required": "gsm8k",
        "alpha": 0.01,
        "rules": [
            {"tasks": "gsm8k", "min": 0.6, "max_drop": 1},
            {"tasks": ["arc_*"], "metric": "acc_norm", "tier": "should", "max_relative_drop": 2.5},
        ],
    }
    options = GateOptions(**parse_policy(policy, "gate.yaml"))
    assert (
        options.baselines == ["main-1", "main-2"] and options.required == ["gsm8k"] and options.alpha == 0.01
    )
    first, second = options.rules
    assert (first.tasks, first.tier, first.min, first.max_drop) == (("gsm8k",), "must", 0.6, 1.0)
    assert second.matches("arc_easy", "acc_norm", first=False) and not second.matches(
        "arc_easy", "acc", first=True
    )
    assert [rule.tier for rule in options.drop_rules] == ["must", "should", "watch"]


def test_without_rules_every_task_must_hold_its_score() -> None:
    (rule,) = GateOptions(max_drop=1.5).drop_rules
    assert (rule.tier, rule.max_drop) == ("must", 1.5)
    assert rule.matches("any", "acc", first=True)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([], "a policy is a mapping"),
        ({"rule": []}, "unknown key `rule`"),
        ({"rules": "gsm8k"}, "`rules` must be a list"),
        ({"rules": [{"tasks": "a", "minimum": 1}]}, "unknown key `minimum`"),
        ({"rules": [{"tasks": "a"}]}, "the rule checks nothing"),
        ({"rules": [{"tasks": "a", "min": "high"}]}, "`min` must be a number"),
        ({"rules": [{"tasks": "a", "min": 1, "tier": "may"}]}, "unknown tier `may`"),
        ({"rules": [{"tasks": "a", "max_drop": -1}]}, "negative"),
        ({"required": 3}, "`required` must be a name"),
        ({"correction": "none at all"}, "unknown correction"),
    ],
)
def test_invalid_policies_are_refused(policy: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        parse_policy(policy, "gate.yaml")
    assert str(caught.value.where).startswith("gate.yaml")


def test_patterns_are_not_names() -> None:
    assert GateRule(tasks=("gsm8k", "arc_*"), min=0.5).task_names == ["gsm8k"]
