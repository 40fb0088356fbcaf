"""Accuracy of tool calls: names and arguments, in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from assay.core.errors import TaskError
from assay.scoring.metrics import metric

if TYPE_CHECKING:
    from assay.scoring.tool_calls.matching import Call

__all__ = ["tool_call_match"]

_MODES = ("exact", "ast", "subset")


@metric("tool_call_match", output_types=("generate_until",))
def tool_call_match(
    *, references: Sequence[Any], predictions: Sequence[Any], mode: str = "exact", ordered: bool = False
) -> float:
    """Return 1.0 if the calls are the expected ones, otherwise 0.0.

    `exact`: the same calls with the same arguments. `ast`: as exact, but strings are compared without case, spaces and
    punctuation. `subset`: every expected call is made with the expected arguments; further calls and arguments are allowed.
    With `ordered`, the order of the calls counts.

    >>> tool_call_match(references=["[area(base=10)]"], predictions=['[{"name": "area", "arguments": {"base": 10}}]'])
    1.0
    >>> tool_call_match(references=["[]"], predictions=["No function applies."])
    1.0
    """
    from assay.scoring.tool_calls.answers import (
        are_equal_values,
        are_similar_values,
        read_answer_calls,
        read_reference_calls,
    )

    if mode not in _MODES:
        raise TaskError(f"invalid `mode` of tool_call_match: `{mode}`", hint=f"one of {', '.join(_MODES)}")
    expected, calls = read_reference_calls(references[0]), read_answer_calls(predictions[0])
    if calls is None or (mode != "subset" and len(calls) != len(expected)):
        return 0.0
    compare = are_similar_values if mode == "ast" else are_equal_values
    match = (
        (lambda call, other: _includes(call, other, compare))
        if mode == "subset"
        else (
            lambda call, other: (
                call.name == other.name and compare(dict(call.arguments), dict(other.arguments))
            )
        )
    )
    return float(
        _match_in_order(calls, expected, match) if ordered else _match_any_order(calls, expected, match)
    )


def _includes(call: Call, expected: Call, compare: Callable[[Any, Any], bool]) -> bool:
    return call.name == expected.name and all(
        name in call.arguments and compare(call.arguments[name], value)
        for name, value in expected.arguments.items()
    )


def _match_in_order(
    calls: Sequence[Call], expected: Sequence[Call], match: Callable[[Call, Call], bool]
) -> bool:
    """Whether the expected calls are among the calls, in their order."""
    rest = iter(calls)
    return all(any(match(call, one) for call in rest) for one in expected)


def _match_any_order(
    calls: Sequence[Call], expected: Sequence[Call], match: Callable[[Call, Call], bool]
) -> bool:
    """Whether every expected call has a call of its own: a maximum matching, found by augmenting paths."""
    owner: dict[int, int] = {}

    def assign(index: int, seen: set[int]) -> bool:
        for place, call in enumerate(calls):
            if place not in seen and match(call, expected[index]):
                seen.add(place)
                if place not in owner or assign(owner[place], seen):
                    owner[place] = index
                    return True
        return False

    return all(assign(index, set()) for index in range(len(expected)))
