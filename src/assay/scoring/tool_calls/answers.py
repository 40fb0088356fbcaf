"""Read the calls of an answer and of a reference, for the metrics of tool calls.

A reference is a list of calls `{"name": …, "arguments": {…}}` (or `{name: arguments}`), one such call, or a text with them in
JSON or Python. An empty list means that nothing is to be called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.core.errors import TaskError
from assay.core.records.tools import ToolAnswer, Tools
from assay.scoring.tool_calls.matching import Call, normalise_text
from assay.scoring.tool_calls.python_calls import CallSyntaxError, parse_python_calls
from assay.scoring.tool_calls.text_calls import parse_text_calls

__all__ = ["are_equal_values", "are_similar_values", "read_answer_calls", "read_reference_calls"]

_NO_TOOLS = Tools(tools=(), syntax="json")


def read_answer_calls(answer: Any) -> list[Call] | None:
    """Return the calls of an answer; None if a call has no valid form.

    >>> read_answer_calls('[{"name": "area", "arguments": {"base": 10}}]')
    [Call(name='area', arguments={'base': 10})]
    """
    calls = answer.calls if isinstance(answer, ToolAnswer) else parse_text_calls(str(answer), _NO_TOOLS)
    found = []
    for call in calls:
        if call.problem:
            return None
        arguments: dict[str | None, Any] = {}
        arguments.update(call.values or {})
        found.append(Call(call.name, arguments))
    return found


def read_reference_calls(reference: Any) -> list[Call]:
    """Return the expected calls.

    >>> read_reference_calls([{"area": {"base": 10}}]) == read_reference_calls("[area(base=10)]")
    True

    Raises:
        TaskError: The reference has another form.
    """
    if isinstance(reference, str):
        text = reference.strip()
        try:
            reference = json.loads(text) if text else []
        except ValueError:
            try:
                return parse_python_calls(text)
            except CallSyntaxError:
                raise _build_error(reference) from None
    if isinstance(reference, Mapping):
        reference = [reference]
    if not isinstance(reference, (list, tuple)):
        raise _build_error(reference)
    return [_read_call(one) for one in reference]


def _read_call(value: Any) -> Call:
    if isinstance(value, Mapping):
        inner = value.get("function")
        own = inner if isinstance(inner, Mapping) else value
        if isinstance(own.get("name"), str) and "arguments" in own:
            arguments = own["arguments"]
            arguments = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
            if isinstance(arguments, Mapping):
                return Call(own["name"], dict(arguments))
        elif set(own) == {"name"}:
            return Call(str(own["name"]), {})
        elif len(own) == 1:
            ((name, arguments),) = own.items()
            if isinstance(arguments, Mapping):
                return Call(str(name), dict(arguments))
    raise _build_error(value)


def _build_error(value: Any) -> TaskError:
    return TaskError(
        f"the target is not a list of calls: {value!r:.80}",
        hint='`[{"name": "area", "arguments": {"base": 10}}]`, or `[]` for no call',
    )


def are_equal_values(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, `true` and 1 are not."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(
            are_equal_values(first[key], second[key]) for key in first
        )
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(are_equal_values, first, second))
    return (type(first) is type(second) and bool(first == second)) or _are_equal_numbers(first, second)


def _are_equal_numbers(first: Any, second: Any) -> bool:
    return isinstance(first, (int, float)) and isinstance(second, (int, float)) and first == second


def are_similar_values(first: Any, second: Any) -> bool:
    """Whether two values are equal, with strings compared without case, spaces and punctuation, as BFCL does."""
    if isinstance(first, str) and isinstance(second, str):
        return normalise_text(first) == normalise_text(second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(
            are_similar_values(first[key], second[key]) for key in first
        )
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(are_similar_values, first, second))
    return are_equal_values(first, second)
