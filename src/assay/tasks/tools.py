"""The tools of a task (`tools`, `tool_choice`, `response_format`): definitions are read, checked, and computed per document.

A definition has the form of any service: `{name, description, parameters}`, OpenAI's `{type: function, function: {…}}`, or
Anthropic's with `input_schema`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import TaskError
from assay.core.records.specs import TaskSpec
from assay.core.records.tools import ResponseFormat, Tool, Tools

__all__ = ["ToolsFunction", "compile_tools", "parse_response_format", "parse_tool_choice", "parse_tools"]

ToolsFunction = Callable[[Mapping[str, Any]], Tools | None]

_SUFFIXES = (".json", ".jsonl", ".yaml", ".yml")
_MAX_NAME_LENGTH = 64
_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")
_CHOICES = ("auto", "none", "required")
_FORM = "a tool has a `name`, a `description` and `parameters` (a JSON schema)"


def parse_tools(value: Any, where: str) -> tuple[Tool, ...]:
    """Return the tools of a list of definitions.

    Raises:
        TaskError: A definition is no mapping, has no name or an invalid schema, or two have the same name.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise TaskError(f"the tools are not JSON: {error}", where=where, hint=_FORM) from None
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence):
        raise TaskError(f"`tools` must be a list of definitions, not {value!r:.60}", where=where, hint=_FORM)
    tools: dict[str, Tool] = {}
    for index, definition in enumerate(value):
        tool = _parse_tool(definition, f"{where}[{index}]")
        if tool.name in tools:
            raise TaskError(f"two tools are called `{tool.name}`", where=f"{where}[{index}]")
        tools[tool.name] = tool
    return tuple(tools.values())


def _parse_tool(definition: Any, where: str) -> Tool:
    from assay.core.json_schema import describe_invalid_schema

    if not isinstance(definition, Mapping):
        raise TaskError(f"a tool must be a mapping, not {definition!r:.60}", where=where, hint=_FORM)
    inner = definition.get("function")
    own: Mapping[str, Any] = inner if isinstance(inner, Mapping) else definition
    name = own.get("name")
    if not isinstance(name, str) or not name:
        raise TaskError("a tool needs a `name`", where=where, hint=_FORM)
    if len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise TaskError(
            f"invalid name of a tool: `{name:.80}`",
            where=f"{where}.name",
            hint=f"use letters, digits, `_` and `-`, at most {_MAX_NAME_LENGTH} characters",
        )
    key = "input_schema" if "input_schema" in own else "parameters"
    schema = own.get(key)
    if schema is None:
        schema = {"type": "object", "properties": {}}
    problem = describe_invalid_schema(schema)
    if not problem and (not isinstance(schema, Mapping) or schema.get("type", "object") != "object"):
        problem = "the schema of the arguments must have `type: object`"
    if problem:
        raise TaskError(f"the tool `{name}` has an invalid JSON schema: {problem}", where=f"{where}.{key}")
    if missing := [one for one in schema.get("required", ()) if one not in schema.get("properties", {})]:
        raise TaskError(
            f"the tool `{name}` requires an argument that it does not describe: `{missing[0]}`",
            where=f"{where}.{key}.required",
        )
    plain = {"type": "object", "properties": {}, **schema}
    return Tool(name, str(own.get("description") or ""), plain)


def compile_tools(spec: TaskSpec, columns: Collection[str]) -> ToolsFunction | None:
    """Return a function from the fields of a document to its tools; None if the task has no tools.

    Raises:
        TaskError: The definitions, which do not depend on the document, are invalid.
    """
    source, where = spec.tools, spec.place("tools")
    if source is None:
        return None

    def build(definitions: Any) -> Tools | None:
        tools = parse_tools(definitions, where)
        if spec.tool_choice not in (*_CHOICES, *(tool.name for tool in tools)):
            raise TaskError(
                f"`tool_choice` names a tool that does not exist: `{spec.tool_choice}`",
                where=spec.place("tool_choice"),
                hint=f"{', '.join(_CHOICES)}, or one of: {', '.join(tool.name for tool in tools)}",
            )
        if not tools:
            return None
        return Tools(tools=tools, choice=spec.tool_choice, parallel=spec.parallel_tool_calls)

    if isinstance(source, str) and source not in columns:
        source = _read_file(source, spec, columns)
    if callable(source):
        function = source
        by_content = lru_cache(maxsize=256)(lambda text: build(json.loads(text)))
        return lambda fields: by_content(json.dumps(function(fields), ensure_ascii=False, default=str))
    if isinstance(source, str):
        column = source
        parse = lru_cache(maxsize=256)(lambda text: build(json.loads(text)))
        return lambda fields: parse(
            json.dumps(_decode(fields[column], where), ensure_ascii=False, default=str)
        )
    fixed = build(source)
    return lambda fields: fixed


def _decode(value: Any, where: str) -> Any:
    """Return the value of a column: a list, or JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise TaskError(f"the tools are not JSON: {error}", where=where, hint=_FORM) from None


def _read_file(name: str, spec: TaskSpec, columns: Collection[str]) -> Any:
    path = Path(name) if Path(name).is_absolute() else Path(spec.path).parent / name
    where = spec.place("tools")
    if path.suffix.lower() not in _SUFFIXES:
        raise TaskError(
            f"`tools: {name}` is neither a column nor a file",
            where=where,
            hint=f"columns: {', '.join(sorted(columns))}; files end in {', '.join(_SUFFIXES)}",
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"the file of the tools cannot be read: {error}", where=where) from None
    try:
        match path.suffix.lower():
            case ".jsonl":
                return [json.loads(line) for line in text.splitlines() if line.strip()]
            case ".json":
                return json.loads(text)
            case _:
                return yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise TaskError(f"the file of the tools is invalid: {error}", where=str(path)) from None


def parse_tool_choice(value: Any) -> str:
    """Return `auto`, `none`, `required` or the name of a tool; OpenAI's and Anthropic's forms are accepted.

    >>> parse_tool_choice({"type": "function", "function": {"name": "area"}}), parse_tool_choice("any")
    ('area', 'required')

    Raises:
        ValueError: The value has another form.
    """
    if isinstance(value, Mapping):
        inner = value.get("function")
        name = inner.get("name") if isinstance(inner, Mapping) else value.get("name")
        value = name or value.get("type")
    if not isinstance(value, str) or not value:
        raise ValueError("not a choice")
    return {"any": "required"}.get(value, value)


def parse_response_format(value: Any, where: str) -> ResponseFormat:
    """Return the format of `response_format`: a JSON schema, OpenAI's form with `json_schema`, or `json_object`.

    Raises:
        TaskError: It has another form, or the schema is invalid.
    """
    from assay.core.json_schema import describe_invalid_schema

    hint = "`response_format: {type: json_schema, json_schema: {name: answer, schema: {…}}}`, or the schema itself"
    if value == "json_object" or (isinstance(value, Mapping) and value.get("type") == "json_object"):
        return ResponseFormat()
    if not isinstance(value, Mapping):
        raise TaskError(f"`response_format` must be a JSON schema, not {value!r:.60}", where=where, hint=hint)
    given = value.get("json_schema") if value.get("type") == "json_schema" else {"schema": value}
    schema = given.get("schema") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(schema, Mapping):
        raise TaskError("`response_format` has no `schema`", where=where, hint=hint)
    if problem := describe_invalid_schema(schema):
        raise TaskError(f"`response_format` has an invalid JSON schema: {problem}", where=where, hint=hint)
    return ResponseFormat(
        schema=dict(schema), name=str(given.get("name") or "answer"), strict=given.get("strict") is not False
    )
