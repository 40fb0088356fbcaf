"""The syntax in which families of models write tool calls as text, and how to find out which one a model uses.

The chat template of a model tells its format. For a server that returns calls as text, the marks in the text tell it. A text
between the marks that cannot be parsed becomes a call without a name.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.python_syntax import parse_python
from assay.core.records.tools import ToolCall

__all__ = [
    "FORMATS",
    "CallFormat",
    "ExtractedCalls",
    "detect_call_format",
    "extract_known_calls",
    "supports_tools",
]

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ExtractedCalls:
    """A generated text without its calls, and the calls."""

    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a family of models writes calls.

    >>> HERMES.extract('<tool_call>{"name": "area", "arguments": {"base": 10}}</tool_call>').calls
    (ToolCall(name='area', arguments='{"base": 10}', id=''),)
    """

    name: str
    marks: tuple[str, ...]
    """Texts of which one occurs in the chat template or among the special tokens of the family."""

    pattern: re.Pattern[str] | None
    """Matches a block of calls; its first group is parsed. None: the whole answer is parsed."""

    parse: Callable[[str], Sequence[ToolCall] | None]
    """Returns the calls in a block, or None if it cannot be parsed."""

    reads_raw_text: bool = False
    """Whether calls are in the reasoning channels of the text, so that they are extracted before reasoning is separated."""

    def extract(self, text: str) -> ExtractedCalls:
        """Separate the calls from a generated text."""
        if self.pattern is None:
            calls = self.parse(text.strip())
            return ExtractedCalls(text) if calls is None else ExtractedCalls("", tuple(calls))
        calls = []
        for match in self.pattern.finditer(text):
            block = next((group for group in match.groups() if group is not None), "")
            found = self.parse(block.strip())
            calls += [ToolCall("", match[0].strip())] if found is None else found
        return ExtractedCalls(self.pattern.sub("", text).strip() if calls else text, tuple(calls))


# --- parsing -----------------------------------------------------------------------------------------


def _parse_json_calls(text: str) -> list[ToolCall] | None:
    """Parse one call or a list of calls; several values may follow each other, separated by `;`, commas or space."""
    calls: list[ToolCall] = []
    position = 0
    while position < len(text):
        if text[position] in "; ,\n\r\t":
            position += 1
            continue
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        for one in value if isinstance(value, list) else [value]:
            call = _call_from_json(one)
            if call is None:
                return None
            calls.append(call)
    return calls


def _call_from_json(value: Any) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    own = inner if isinstance(inner, dict) else value
    name = next(
        (own[key] for key in ("name", "tool_name", "function") if isinstance(own.get(key), str)), None
    )
    arguments: Any = next((own[key] for key in ("arguments", "parameters", "args") if key in own), {})
    if not name:
        return None
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, text, str(value.get("id") or value.get("tool_call_id") or ""))


def _parse_plain_json(text: str) -> list[ToolCall] | None:
    """Parse an answer that is JSON as a whole; other answers are text. JSON that begins like a call is an attempt."""
    text = text.removeprefix("<|python_tag|>").strip()
    if not text.startswith(("{", "[{")):
        return None
    calls = _parse_json_calls(text)
    attempts = re.match(r"\[?\{\s*\"(name|function|type)\"\s*:", text)
    return [ToolCall("", text)] if calls is None and attempts else calls


_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_KEY_VALUE = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?(.*?)(?:<｜tool▁sep｜>|\n```json\n)(.*?)<｜tool▁call▁end｜>",
    re.DOTALL,
)
_FENCED = re.compile(r"\A(?:```json)?\s*(.*?)\s*(?:```)?\Z", re.DOTALL)


def _parse_hermes(text: str) -> list[ToolCall] | None:
    """Parse JSON, the XML of Qwen3-Coder, or the keys and values of GLM."""
    if "<function=" in text:
        return [
            ToolCall(name, _dump({key: _read_value(value) for key, value in _PARAMETER.findall(body)}))
            for name, body in _FUNCTION.findall(text)
        ] or None
    if "<arg_key>" in text:
        name = text.partition("<arg_key>")[0].strip()
        return [
            ToolCall(
                name, _dump({key.strip(): _read_value(value) for key, value in _KEY_VALUE.findall(text)})
            )
        ]
    return _parse_json_calls(text) or None


def _parse_mistral(text: str) -> list[ToolCall] | None:
    """Parse a list of calls, or `name[ARGS]{…}` of newer models."""
    if "[ARGS]" not in text:
        return _parse_json_calls(text) or None
    calls = []
    for part in text.split("[TOOL_CALLS]"):
        name, _, arguments = part.partition("[ARGS]")
        name, _, call_id = name.partition("[CALL_ID]")
        if not name.strip():
            return None
        calls.append(ToolCall(name.strip(), arguments.strip(), call_id.strip()))
    return calls


def _parse_deepseek(text: str) -> list[ToolCall] | None:
    calls = []
    for name, body in _DEEPSEEK.findall(text):
        fenced = _FENCED.match(body.strip())
        name, _, more = name.partition("\n")
        arguments = fenced[1] if fenced else body
        calls.append(
            ToolCall(name.strip(), (more.strip().removeprefix("```json").strip() + arguments).strip())
        )
    return calls or None


def _parse_python(text: str) -> list[ToolCall] | None:
    """Parse `[area(base=10)]` with literal values."""
    try:
        body = parse_python(text, "eval").body
        nodes = body.elts if isinstance(body, (ast.List, ast.Tuple)) else [body]
        calls = []
        for node in nodes:
            if not isinstance(node, ast.Call) or node.args or any(word.arg is None for word in node.keywords):
                return None
            values = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
            calls.append(ToolCall(ast.unparse(node.func), _dump(values)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return calls


def _parse_harmony(text: str) -> list[ToolCall] | None:
    header, _, content = text.partition("<|message|>")
    target = re.search(r"to=(?:functions\.)?([\w.-]+)", header)
    return [ToolCall(target[1], content.strip())] if target else None


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# --- families ----------------------------------------------------------------------------------------


def _block(opening: str, closing: str) -> re.Pattern[str]:
    """Return the pattern of a block between two marks; a block that is not closed ends with the text."""
    return re.compile(f"{opening}(.*?)(?:{closing}|\\Z)", re.DOTALL)


HARMONY = CallFormat(
    "harmony",
    ("<|call|>",),
    re.compile(
        r"(?:<\|start\|>assistant|<\|channel\|>|\A)(?=(?:[^<]|<\|(?:channel|constrain)\|>)*+<\|message\|>)"
        r"((?:[^<]|<\|(?:channel|constrain)\|>)*?to=functions\."
        r"(?:[^<]|<\|(?:channel|constrain)\|>)*<\|message\|>.*?)(?:<\|call\|>|<\|end\|>|\Z)",
        re.DOTALL,
    ),
    _parse_harmony,
    reads_raw_text=True,
)
MISTRAL = CallFormat(
    "mistral", ("[TOOL_CALLS]",), re.compile(r"\[TOOL_CALLS\](.*?)(?:</s>|\Z)", re.DOTALL), _parse_mistral
)
DEEPSEEK = CallFormat(
    "deepseek",
    ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    re.compile(r"(?:<｜tool▁calls▁begin｜>)(.*?)(?:<｜tool▁calls▁end｜>|\Z)", re.DOTALL),
    _parse_deepseek,
)
COHERE = CallFormat(
    "cohere", ("<|START_ACTION|>",), _block(r"<\|START_ACTION\|>", r"<\|END_ACTION\|>"), _parse_json_calls
)
GRANITE = CallFormat(
    "granite", ("<|tool_call|>",), _block(r"<\|tool_call\|>", r"<\|/tool_call\|>"), _parse_json_calls
)
PYTHONIC = CallFormat(
    "pythonic", ("<|python_start|>",), _block(r"<\|python_start\|>", r"<\|python_end\|>"), _parse_python
)
HERMES = CallFormat("hermes", ("<tool_call>",), _block("<tool_call>", "</tool_call>"), _parse_hermes)
LLAMA_3 = CallFormat("llama 3", ("<|python_tag|>",), None, _parse_plain_json)
JSON = CallFormat("json", (), None, _parse_plain_json)
"""The answer as a whole is JSON: the format of templates that describe tools without marks of their own."""

FORMATS = (HARMONY, MISTRAL, DEEPSEEK, COHERE, GRANITE, PYTHONIC, HERMES, LLAMA_3)
"""All formats with marks. Those with marks that are special tokens come first."""

_TOOLS_VARIABLE = re.compile(r"{[{%][^}]*\b(?:tools|available_tools)\b")


def supports_tools(chat_template: str) -> bool:
    """Whether a chat template renders tools.

    >>> supports_tools("{% if tools %}{{ tools | tojson }}{% endif %}"), supports_tools("{{ messages }}")
    (True, False)
    """
    return bool(_TOOLS_VARIABLE.search(chat_template))


def detect_call_format(chat_template: str, special_tokens: Iterable[str] = ()) -> CallFormat | None:
    """Return the format of a model from its chat template; None if the template does not render tools.

    The special tokens decide only if the template has no marks.
    """
    if not supports_tools(chat_template):
        return None
    for known in (chat_template, "\n".join(special_tokens)):
        for one in FORMATS:
            if any(mark in known for mark in one.marks):
                return one
    return JSON


def extract_known_calls(text: str) -> ExtractedCalls:
    """Separate the calls from the text of a server that does not parse them: where the text has the marks of a format."""
    for one in FORMATS:
        if one.pattern is not None and any(mark in text for mark in one.marks):
            found = one.extract(text)
            if found.calls:
                return found
    if text.lstrip().startswith("<|python_tag|>"):
        return LLAMA_3.extract(text)
    return ExtractedCalls(text)
