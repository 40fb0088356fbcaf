"""F1 of the names and arguments of tool calls: partial credit for calls that are almost right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.scoring.metrics import metric

if TYPE_CHECKING:
    from assay.scoring.tool_calls.matching import Call

__all__ = ["tool_argument_f1"]


@metric("tool_argument_f1", output_types=("generate_until",))
def tool_argument_f1(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Return the F1 of the calls: each call counts as one item for its name and one per argument.

    Calls are paired with expected calls of the same name, the most similar first.

    >>> tool_argument_f1(references=["[area(base=10, height=5)]"], predictions=["[area(base=10, height=6)]"])
    0.6666666666666666
    """
    from assay.scoring.tool_calls.answers import read_answer_calls, read_reference_calls

    expected, calls = read_reference_calls(references[0]), read_answer_calls(predictions[0])
    if calls is None:
        return 0.0
    if not expected and not calls:
        return 1.0
    common = _count_common(calls, expected)
    total = sum(1 + len(call.arguments) for call in (*calls, *expected))
    return 2 * common / total


def _count_common(calls: Sequence[Call], expected: Sequence[Call]) -> int:
    pairs = sorted(
        (
            (_count_equal(call, one), place, index)
            for place, call in enumerate(calls)
            for index, one in enumerate(expected)
            if call.name == one.name
        ),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    common, used, found = 0, set[int](), set[int]()
    for count, place, index in pairs:
        if place not in used and index not in found:
            used.add(place)
            found.add(index)
            common += count
    return common


def _count_equal(call: Call, expected: Call) -> int:
    """Return the number of equal items: the name, and every argument with the same value."""
    from assay.scoring.tool_calls.answers import are_equal_values

    return 1 + sum(
        name in call.arguments and are_equal_values(call.arguments[name], value)
        for name, value in expected.arguments.items()
    )
