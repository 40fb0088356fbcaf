"""Tools that a model may call, the calls of a response, tool results, and the required format of an answer.

A `Generate` request carries `Tools` and a `ResponseFormat`; a `Response` carries `ToolCall` objects. In a prompt, `ToolCall`
and `ToolResult` are parts of messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.fingerprints import digest_json

__all__ = [
    "CALL_SYNTAXES",
    "TOOL_CALL_MODES",
    "ResponseFormat",
    "Tool",
    "ToolAnswer",
    "ToolCall",
    "ToolResult",
    "Tools",
    "describe_call_problem",
]

CALL_SYNTAXES = ("json", "python", "xml")
"""The forms in which a model without tool support writes calls as text."""

TOOL_CALL_MODES = ("auto", "native", *CALL_SYNTAXES)
"""How models get tools: in their own format (`native`), or as text with calls in one of the syntaxes; `auto`: native if the
model supports tools, else as text."""

_set_frozen = object.__setattr__


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """The JSON schema of its arguments: an object."""

    def to_json(self) -> dict[str, Any]:
        """Return the definition as plain JSON: name, description, parameters."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in a response or in an assistant message.

    >>> ToolCall("area", '{"base": 10}').values
    {'base': 10}
    >>> ToolCall("area", '{"base": ').values is None
    True
    """

    name: str
    """The name of the tool; empty if the text could not be parsed as a call."""

    arguments: str = "{}"
    """The arguments as JSON text, exactly as the model wrote them; if `name` is empty, the text of the whole call."""

    id: str = ""
    """The server's id of the call, which the tool result repeats."""

    @property
    def values(self) -> dict[str, Any] | None:
        """The arguments by name; None if the text is not a JSON object."""
        try:
            values = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) else None

    @property
    def problem(self) -> str:
        """What is wrong with the form of the call; empty if it has a name and its arguments are a JSON object."""
        if not self.name:
            return "the call cannot be parsed"
        return "" if self.values is not None else f"the arguments of `{self.name}` are not a JSON object"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: the content of a message with the role `tool`."""

    content: str
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a request, and how the model may call them."""

    tools: tuple[Tool, ...]
    choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""

    parallel: bool | None = None
    """Whether a response may have several calls; None: the default of the model."""

    syntax: str = ""
    """Empty: the model gets the tools in its own format. Else one of `CALL_SYNTAXES`: the prompt describes the tools, and the
    calls are parsed from the text of the response."""

    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Hash of the definitions and settings. Computed once."""
        if not self._digest:
            _set_frozen(self, "_digest", digest_json(self.to_json()))
        return self._digest

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tool.name for tool in self.tools)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, without settings that have their default."""
        settings = {"choice": self.choice, "parallel": self.parallel, "syntax": self.syntax}
        defaults = {"choice": "auto", "parallel": None, "syntax": ""}
        shown = {key: value for key, value in settings.items() if value != defaults[key]}
        return {"tools": [tool.to_json() for tool in self.tools], **shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFormat:
    """The format that an answer must have: JSON, with a schema if given."""

    schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer; None: any JSON object."""

    name: str = "answer"
    strict: bool = True
    """Whether the server must guarantee the schema, where it can."""

    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Hash of the format. Computed once."""
        if not self._digest:
            _set_frozen(self, "_digest", digest_json(self.to_json()))
        return self._digest

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        schema = None if self.schema is None else dict(self.schema)
        return {"name": self.name, "schema": schema, "strict": self.strict}


class ToolAnswer(str):
    """The answer to a request with tools: the text of the response, and its calls.

    As text, it is the calls as a JSON list of names and arguments, or the text of the response if there are no calls. Filters,
    metrics and task code that expect text work with it.

    >>> ToolAnswer.from_calls("", [ToolCall("area", '{"base": 10}')])
    '[{"name": "area", "arguments": {"base": 10}}]'
    """

    calls: tuple[ToolCall, ...]
    text: str
    """The text beside the calls."""

    tools: Tools | None
    """The tools of the request."""

    @classmethod
    def from_calls(cls, text: str, calls: Sequence[ToolCall], tools: Tools | None = None) -> ToolAnswer:
        """Return the answer of a response."""
        listed = [
            {"name": call.name, "arguments": call.arguments if call.values is None else call.values}
            for call in calls
        ]
        answer = cls(json.dumps(listed, ensure_ascii=False) if listed else text)
        answer.calls, answer.text, answer.tools = tuple(calls), text, tools
        return answer

    def __reduce__(self) -> Any:
        return ToolAnswer.from_calls, (self.text, self.calls, self.tools)


def describe_call_problem(calls: Sequence[ToolCall]) -> str:
    """Return what is wrong with the form of the first malformed call; empty if there is none."""
    return next((problem for call in calls if (problem := call.problem)), "")
