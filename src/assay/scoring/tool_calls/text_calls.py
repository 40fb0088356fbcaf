"""Parse tool calls that a model wrote as text, because the prompt described the tools.

Calls are JSON (`[{"name": …, "arguments": {…}}]`), Python (`[area(base=10)]`) or XML (`<invoke name="area">…`). The syntax that
the prompt asked for is tried first, then the others: a call in another syntax is a call. Prose and code fences around the
calls are ignored.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay.core.python_syntax import parse_python
from assay.core.records.tools import CALL_SYNTAXES, Tool, ToolCall, Tools

__all__ = ["parse_text_calls"]

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<tool_calls?>((?:(?!<tool_calls?>).)*?)</tool_calls?>", re.DOTALL)
_INVOKE = re.compile(
    r"<invoke\s+name=[\"']([^\"'<>]+)[\"']\s*(?:/>|>((?:(?!<invoke\s).)*?)</invoke>)", re.DOTALL
)
_PARAMETER = re.compile(r"<parameter\s+name=[\"']([^\"'<>]+)[\"']\s*>(.*?)</parameter>", re.DOTALL)
_CALL_MARKS = re.compile(
    r"<invoke\b|<function_calls?\b|<tool_call|<parameter\b|\"arguments\"\s*:|\"tool_calls\"\s*:"
)
_DECODER = json.JSONDecoder()
_ESCAPES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"))


def parse_text_calls(text: str, tools: Tools) -> tuple[ToolCall, ...]:
    """Return the calls in a text; empty if it contains none.

    A text that attempts a call in none of the syntaxes gives a single call without a name.

    >>> area = Tools(tools=(Tool("area"),), syntax="json")
    >>> parse_text_calls('[{"name": "area", "arguments": {"base": 10}}]', area)
    (ToolCall(name='area', arguments='{"base": 10}', id=''),)
    >>> parse_text_calls("No function applies.", area), parse_text_calls("area(base=", area)[0].problem
    ((), 'the call cannot be parsed')
    """
    known = {tool.name: tool for tool in tools.tools}
    order = [tools.syntax, *(syntax for syntax in CALL_SYNTAXES if syntax != tools.syntax)]
    for syntax in order:
        for candidate in _list_candidates(text):
            try:
                calls = _PARSERS[syntax](candidate, known) if candidate else None
            except (
                ValueError,
                TypeError,
                RecursionError,
                MemoryError,
            ):  # too deep, or values that JSON cannot hold
                calls = None
            if calls is not None:
                return tuple(calls)
    return (ToolCall("", text),) if _attempts_call(text, known) else ()


def _list_candidates(text: str) -> Iterator[str]:
    """Yield the text, and the parts of it that may be the calls alone."""
    yield text.strip().strip("`").strip()
    for block in _FENCE.findall(text):
        yield block.strip()
    if tagged := [block.strip() for block in _TAGGED.findall(text)]:
        yield "[" + ",".join(tagged) + "]" if len(tagged) > 1 else tagged[0]


def _attempts_call(text: str, known: Mapping[str, Tool]) -> bool:
    if _CALL_MARKS.search(text) or text.strip().startswith(("[{", '{"')):
        return True
    return any(re.search(rf"(?<![\w.]){re.escape(name)}\s*\(", text) for name in known)


# --- JSON --------------------------------------------------------------------------------------------


def _parse_json(text: str, known: Mapping[str, Tool]) -> list[ToolCall] | None:
    for start in [match.start() for match in re.finditer(r"[\[{]", text)][:8]:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        calls = _calls_from_json(value, is_whole=start == 0)
        if calls is not None:
            following = text.find("{", end) if isinstance(value, dict) else -1
            more = _parse_json(text[following:], known) if following >= 0 else None  # one object per call
            return [*calls, *(more or ())]
    return None


def _calls_from_json(value: Any, *, is_whole: bool) -> list[ToolCall] | None:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value, is_whole = value["tool_calls"], True
    listed = value if isinstance(value, list) else [value]
    if not listed:
        return [] if is_whole else None  # a list without calls is an answer, brackets inside a text are none
    calls = [_call_from_json(one) for one in listed]
    return None if None in calls else calls  # type: ignore[return-value]


def _call_from_json(value: Any) -> ToolCall | None:
    """Return the call of an object with a name and arguments; None for other values."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    own = inner if isinstance(inner, dict) else value
    name = own.get("name", inner if isinstance(inner, str) else None)
    key = next((key for key in ("arguments", "parameters", "input", "args") if key in own), None)
    if not isinstance(name, str) or not name or (key is None and set(own) != {"name"}):
        return None
    arguments = own.get(key, {}) if key is not None else {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, text)


# --- Python ------------------------------------------------------------------------------------------


def _parse_python(text: str, known: Mapping[str, Tool]) -> list[ToolCall] | None:
    from assay.scoring.tool_calls.python_calls import CallSyntaxError, parse_python_calls

    texts = [text]
    if "[" in text and "]" in text:
        texts.append(text[text.index("[") : text.rindex("]") + 1])
    texts += [line.strip() for line in text.splitlines() if line.strip().endswith(")")]
    for one in texts:
        try:
            calls = parse_python_calls(_name_arguments(one, known))
        except CallSyntaxError:
            continue
        is_known = any(call.name in known for call in calls)
        if calls and (is_known or one is text):
            return [ToolCall(call.name, _to_json(dict(call.arguments))) for call in calls]
        if one.replace(" ", "") == "[]" and one is text:
            return []
    return None


def _name_arguments(text: str, known: Mapping[str, Tool]) -> str:
    """Return the calls with names for positional arguments, from the order of the parameters."""
    try:
        body = parse_python(text.strip(), "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    calls = body.elts if isinstance(body, (ast.List, ast.Tuple)) else [body]
    for call in calls:
        if isinstance(call, ast.Call) and call.args:
            tool = known.get(ast.unparse(call.func))
            names = list(tool.parameters.get("properties", {})) if tool else []
            if len(call.args) > len(names):
                return ""  # no call: an argument has no name
            given = [
                ast.keyword(arg=name, value=value) for name, value in zip(names, call.args, strict=False)
            ]
            call.keywords, call.args = [*given, *call.keywords], []
    return ast.unparse(body)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# --- XML ---------------------------------------------------------------------------------------------


def _parse_xml(text: str, known: Mapping[str, Tool]) -> list[ToolCall] | None:
    calls = []
    for name, body in _INVOKE.findall(text):
        schemas = known[name].parameters.get("properties", {}) if name in known else {}
        arguments = {key: _read_value(value, schemas.get(key, {})) for key, value in _PARAMETER.findall(body)}
        calls.append(ToolCall(name, _to_json(arguments)))
    return calls or None


def _read_value(text: str, schema: Any) -> Any:
    """Return the value of an element: text for a string, else JSON if it is JSON."""
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_PARSERS: Mapping[str, Callable[[str, Mapping[str, Tool]], list[ToolCall] | None]] = {
    "json": _parse_json,
    "python": _parse_python,
    "xml": _parse_xml,
}
