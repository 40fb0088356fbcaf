"""Scores of agents: the final state, what the user heard, milestones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.scoring.metrics import metric

if TYPE_CHECKING:
    from assay.core.records.agents import AgentResult

__all__ = ["milestones", "outputs_said", "state_match", "task_success"]

_OWN_ENDS = ("answered", "submitted", "tool-ended", "user-ended", "exited")


@metric("task_success", output_types=("agent",))
def task_success(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """1 if the agent ended by itself in the expected state and said everything that the user must hear.

    Without an expected state and outputs, all checks of the environment must pass.
    """
    result = _get_result(predictions)
    if result.expected_digest or result.expected_outputs:
        success = _is_expected_state(result) and all(_find_outputs(result))
    elif result.checks:
        success = all(share == 1 for share in result.checks.values())
    else:
        raise ValueError("the environment has no `expected_state`, `expected_outputs` or `checks`")
    return float(success and result.end in _OWN_ENDS)


@metric("state_match", output_types=("agent",))
def state_match(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """1 if the final state of the environment is the expected one."""
    result = _get_result(predictions)
    if not result.expected_digest:
        raise ValueError("the environment has no `expected_state`")
    return float(_is_expected_state(result))


@metric("outputs_said", output_types=("agent",))
def outputs_said(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Share of the texts that the user must hear and that the agent said (lower case, without commas)."""
    found = _find_outputs(_get_result(predictions))
    return sum(found) / len(found) if found else 1.0


@metric("milestones", output_types=("agent",))
def milestones(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Mean of the checks of the environment: partial credit."""
    checks = _get_result(predictions).checks
    if not checks:
        raise ValueError("the environment has no `checks`")
    return sum(checks.values()) / len(checks)


def _get_result(predictions: Sequence[Any]) -> AgentResult:
    from assay.core.records.agents import AgentAnswer

    answer = predictions[0]
    if not isinstance(answer, AgentAnswer):
        raise TypeError(
            "the answer does not come from an agent: a filter replaced it, or the output type is not `agent`"
        )
    return answer.result


def _is_expected_state(result: AgentResult) -> bool:
    return not result.expected_digest or result.expected_digest == result.state_digest


def _find_outputs(result: AgentResult) -> list[bool]:
    said = [text.lower().replace(",", "") for text in result.said]
    return [any(output.lower() in text for text in said) for output in result.expected_outputs]
