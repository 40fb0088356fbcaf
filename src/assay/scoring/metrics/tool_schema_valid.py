"""Validity of tool calls: known tools, and arguments that match their JSON schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.errors import TaskError
from assay.scoring.metrics import metric

__all__ = ["tool_schema_valid"]


@metric("tool_schema_valid", output_types=("generate_until",))
def tool_schema_valid(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Return 1.0 if every call names a tool of the document and its arguments match the schema, otherwise 0.0.

    An answer without calls is valid unless `tool_choice` requires a call. Does not read the target: see `tool_call_match`.

    Raises:
        TaskError: The answer is plain text, without the tools of the request.
    """
    from assay.core.json_schema import describe_invalid_value
    from assay.core.records.tools import ToolAnswer
    from assay.scoring.tool_calls.answers import read_answer_calls

    answer = predictions[0]
    calls = read_answer_calls(answer)
    tools = answer.tools if isinstance(answer, ToolAnswer) else None
    if calls is None:
        return 0.0
    if tools is None:
        raise TaskError(
            "`tool_schema_valid` needs the tools of the request",
            hint="a task without `tools`, or with `doc_to_tool_prompt`, gets plain text: remove the metric",
        )
    if not calls:
        return float(tools.choice in ("auto", "none"))
    schemas = {tool.name: tool.parameters for tool in tools.tools}
    is_valid = all(
        call.name in schemas and not describe_invalid_value(dict(call.arguments), schemas[call.name])
        for call in calls
    )
    return float(is_valid and tools.choice in ("auto", "required", *{call.name for call in calls}))
