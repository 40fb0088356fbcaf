"""Metrics of agents: success, state, outputs, milestones."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.records.agents import AgentAnswer, AgentEnd, AgentResult
from assay.scoring.metrics.agents import milestones, outputs_said, state_match, task_success


def answer(end: AgentEnd = "answered", **fields: Any) -> list[AgentAnswer]:
    return [AgentAnswer.from_result(AgentResult(end=end, **fields))]


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        ({"expected_digest": "a", "state_digest": "a"}, 1),
        ({"expected_digest": "a", "state_digest": "b"}, 0),
        ({"expected_digest": "a", "state_digest": "a", "end": "turn-limit"}, 0),
        ({"expected_outputs": ("1200",), "said": ("It costs 1,200 dollars.",)}, 1),
        ({"expected_outputs": ("1200",), "said": ("It is free.",)}, 0),
        ({"checks": {"file": 1.0, "test": 1.0}}, 1),
        ({"checks": {"file": 1.0, "test": 0.5}}, 0),
        ({"checks": {"file": 1.0}, "end": "time-limit"}, 0),
        ({"expected_digest": "a", "state_digest": "a", "checks": {"file": 0.0}}, 1),
    ],
)
def test_success_needs_the_state_the_outputs_or_else_all_checks(fields: dict[str, Any], score: float) -> None:
    assert task_success(references=[], predictions=answer(**fields)) == score


def test_an_environment_that_expects_nothing_has_no_score() -> None:
    with pytest.raises(ValueError, match="no `expected_state`, `expected_outputs` or `checks`"):
        task_success(references=[], predictions=answer())
    with pytest.raises(ValueError, match="no `expected_state`"):
        state_match(references=[], predictions=answer())
    with pytest.raises(ValueError, match="no `checks`"):
        milestones(references=[], predictions=answer())


def test_parts_give_partial_credit() -> None:
    said = answer(expected_outputs=("red", "blue"), said=("Red.",))
    assert outputs_said(references=[], predictions=said) == 0.5
    assert milestones(references=[], predictions=answer(checks={"a": 1.0, "b": 0.5})) == 0.75
