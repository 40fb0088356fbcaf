"""Python functions as tools: the signature becomes the JSON schema, the docstring the description.

    @tool(effect="once")
    def send_mail(address: str, text: str, environment: Shop) -> str:
        \"\"\"Send a mail to a customer.

        Args:
            address: The mail address of the customer.
        \"\"\"

A parameter called `environment` gets the environment and is not part of the schema.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from assay.agents.tools import EFFECTS, AgentTool, Effect, Environment, ToolOutput
from assay.core.errors import TaskError
from assay.core.records.tools import Tool
from assay.core.registry import Registry

__all__ = ["TOOLS", "FunctionTool", "build_schema", "to_output", "to_tool", "tool"]

F = TypeVar("F", bound=Callable[..., Any])

TOOLS: Registry[Any] = Registry("tool", plural="agent_tools")
"""Tools that a task file can name. Each is a function of an `EnvironmentContext` that returns an `AgentTool`."""

_EFFECT_ATTRIBUTE = "__assay_tool__"
_HIDDEN = ("self", "environment")
_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    type(None): {"type": "null"},
}
_ARGUMENT = re.compile(r"^\s+(\w+)(?: \([^)]*\))?:\s*(.*)$")


def tool(*, effect: Effect = "repeatable", name: str = "", description: str = "") -> Callable[[F], F]:
    """Return a decorator that declares the effect, and if given the name and description, of a tool function."""
    if effect not in EFFECTS:
        raise ValueError(f"effect must be one of {', '.join(EFFECTS)}, not {effect!r}")

    def declare(function: F) -> F:
        setattr(function, _EFFECT_ATTRIBUTE, {"effect": effect, "name": name, "description": description})
        return function

    return declare


class FunctionTool:
    """A tool that calls a Python function."""

    in_thread = False

    def __init__(
        self, function: Callable[..., Any], *, effect: Effect | None = None, name: str = "", where: str = ""
    ) -> None:
        loaded = function.load() if hasattr(function, "load") else function
        declared: Mapping[str, Any] = getattr(loaded, _EFFECT_ATTRIBUTE, {})
        self._function = loaded
        self.effect: Effect = effect or declared.get("effect", "repeatable")
        if self.effect not in EFFECTS:
            raise TaskError(
                f"unknown effect of a tool: `{self.effect}`", where=where, hint=f"one of {', '.join(EFFECTS)}"
            )
        title = str(name or declared.get("name") or getattr(loaded, "__name__", type(loaded).__name__))
        lead, arguments = _split_docstring(inspect.getdoc(loaded) or "")
        self.definition = Tool(
            title, declared.get("description") or lead, build_schema(loaded, arguments, where=where)
        )
        self._takes_environment = "environment" in inspect.signature(loaded).parameters

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput:
        """Call the function."""
        given = {**arguments, "environment": environment} if self._takes_environment else dict(arguments)
        return to_output(self._function(**given))


def to_tool(value: Any, *, where: str = "") -> AgentTool:
    """Return a tool for a function, a mapping with a `function`, or a tool.

    Raises:
        TaskError: The value is none of these.
    """
    if isinstance(value, Mapping) and callable(value.get("function")):
        unknown = [key for key in value if key not in ("function", "effect", "name")]
        if unknown:
            raise TaskError(
                f"a tool has no key `{unknown[0]}`", where=where, hint="keys: function, effect, name"
            )
        return FunctionTool(
            value["function"], effect=value.get("effect"), name=value.get("name", ""), where=where
        )
    if hasattr(value, "definition") and hasattr(value, "call"):
        found: AgentTool = value
        return found
    if callable(value):
        return FunctionTool(value, where=where)
    raise TaskError(
        f"not a tool: {value!r:.80}",
        where=where,
        hint="a tool is a name, `!function file.function`, or `{function: …, effect: …}`",
    )


def to_output(value: Any) -> ToolOutput:
    """Return what a function returned as text: JSON for objects and lists, a description for bytes.

    >>> to_output({"stock": 3}).text, to_output(b"caf\\xc3\\xa9").text
    ('{"stock": 3}', 'café')
    """
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, str):
        return ToolOutput(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return ToolOutput(bytes(value).decode())
        except UnicodeDecodeError:
            return ToolOutput(f"the tool returned {len(value)} bytes that are not text", error=True)
    if value is None:
        return ToolOutput("done")
    try:
        return ToolOutput(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return ToolOutput(str(value))


def build_schema(
    function: Callable[..., Any], descriptions: Mapping[str, str] | None = None, *, where: str = ""
) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a function.

    >>> def refund(order: str, amount: float = 0.0, reason: Literal["late", "broken"] = "late"): ...
    >>> build_schema(refund)["properties"]["reason"]
    {'type': 'string', 'enum': ['late', 'broken'], 'default': 'late'}

    Raises:
        TaskError: The function has `*args`, `**kwargs` or positional-only parameters, or an unsupported type.
    """
    try:
        hints = get_type_hints(function)
    except Exception:  # noqa: BLE001 - an annotation may name anything
        hints = {}
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in _HIDDEN:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TaskError(
                f"the tool `{getattr(function, '__name__', function)}` has a parameter without a name: `{parameter}`",
                where=where,
                hint="a tool has named parameters only",
            )
        schema = _schema_of_type(hints.get(name, Any), name, where)
        if text := (descriptions or {}).get(name):
            schema["description"] = text
        if parameter.default is parameter.empty:
            required.append(name)
        elif _is_plain(parameter.default):
            schema["default"] = parameter.default
        properties[name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema_of_type(kind: Any, name: str, where: str) -> dict[str, Any]:
    if kind is Any or kind is inspect.Parameter.empty:
        return {}
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        kinds = {type(value) for value in inner}
        base = dict(_SIMPLE.get(kinds.pop(), {})) if len(kinds) == 1 else {}
        return {**base, "enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of_type(one, name, where) for one in inner]}
    if origin in (list, tuple, set, Sequence):
        element = [one for one in inner if one is not Ellipsis]
        items = _schema_of_type(element[0], name, where) if element else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    if origin in (dict, Mapping):
        return {"type": "object"}
    raise TaskError(
        f"the parameter `{name}` of a tool has a type without a JSON schema: {kind!r}",
        where=where,
        hint="use str, int, float, bool, list, dict, Literal or a union of them",
    )


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before `Args:`, and the descriptions of the arguments."""
    lead, _, rest = text.partition("\nArgs:\n")
    found: dict[str, str] = {}
    for line in rest.splitlines():
        if match := _ARGUMENT.match(line):
            found[match[1]] = match[2].strip()
        elif line and not line.startswith(" "):
            break
    return lead.strip(), found
