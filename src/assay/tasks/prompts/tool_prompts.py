"""The prompt that describes tools as text, for models without tool support.

The text names the functions as JSON, the syntax of a call with an example, and what to do if no function applies.
`assay.scoring.tool_calls.text_calls` parses the calls. `docs/guides/function-calling.md` shows the prompt.
"""

from __future__ import annotations

import json

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.tools import Tools
from assay.tasks.prompts.tool_history import has_tool_history, write_tool_history

__all__ = ["add_tool_description", "describe_tools", "write_tools_as_text"]

_FORMS = {
    "json": (
        "Answer with a JSON list of calls and nothing else, for example:\n"
        '[{"name": "function_name", "arguments": {"argument": "value"}}]'
    ),
    "python": (
        "Answer with a Python list of calls with named arguments and nothing else, for example:\n"
        "[function_name(argument='value')]"
    ),
    "xml": (
        "Answer with one element per call and nothing else, for example:\n"
        '<function_calls><invoke name="function_name"><parameter name="argument">value</parameter></invoke></function_calls>\n'
        "Write numbers, lists and objects as JSON."
    ),
}


def describe_tools(tools: Tools) -> str:
    """Return the description of the tools and of the form of an answer."""
    functions = "\n".join(json.dumps(tool.to_json(), ensure_ascii=False) for tool in tools.tools)
    lines = [f"You can call these functions, described as JSON:\n\n{functions}\n", _FORMS[tools.syntax]]
    match tools.choice:
        case "none":
            lines = [lines[0], "Do not call a function now: answer in text."]
        case "auto":
            lines.append("If no function applies, answer in text without a call.")
        case "required":
            lines.append("Call at least one function.")
        case name:
            lines.append(f"Call the function `{name}`.")
    if tools.parallel is False:
        lines.append("Make at most one call.")
    return "\n".join(lines)


def add_tool_description(prompt: Prompt, tools: Tools) -> Prompt:
    """Return the prompt with the description of the tools: in the system message of a chat, else before the text."""
    description = describe_tools(tools)
    first, *rest = prompt.messages
    if prompt.chat and first.role == "system":
        parts = (*first.parts, Text(f"\n\n{description}"))
        return Prompt((Message("system", parts), *rest), chat=True)
    if prompt.plain is not None:
        return Prompt.of_text(f"{description}\n\n{prompt.plain}")
    return Prompt((Message(first.role, (Text(f"{description}\n\n"), *first.parts)), *rest), chat=prompt.chat)


def write_tools_as_text(prompt: Prompt, tools: Tools | None, syntax: str) -> Prompt:
    """Return the prompt for a model without tool support: the tools, and the calls and results so far, as text."""
    if prompt.chat and has_tool_history(prompt):
        prompt = write_tool_history(prompt, syntax)
    return prompt if tools is None else add_tool_description(prompt, tools)
