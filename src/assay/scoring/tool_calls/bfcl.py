"""The verdicts of the Berkeley Function Calling Leaderboard (BFCL v4, single-turn categories).

A response is decoded to calls and compared with the possible answers of its document. `match_bfcl` judges like the checker of
the package `bfcl-eval` 2026.3.23: `python -m tools.oracle.replay` compares both on recorded answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.scoring.tool_calls.java_calls import parse_java_call
from assay.scoring.tool_calls.javascript_calls import parse_javascript_call
from assay.scoring.tool_calls.matching import Call, Mismatch, find_language, match_any_order, match_call
from assay.scoring.tool_calls.python_calls import CallSyntaxError, parse_python_calls

__all__ = ["decode_native_calls", "decode_text_calls", "find_bfcl_language", "match_bfcl"]

_CODE_FENCE = "`\n "


def find_bfcl_language(category: str) -> str:
    """Return the language in which the functions of a category are written.

    >>> find_bfcl_language("simple_javascript"), find_bfcl_language("live_multiple")
    ('javascript', 'python')
    """
    if "javascript" in category:
        return "javascript"
    return "java" if "java" in category else "python"


def decode_text_calls(text: str, category: str) -> list[Call]:
    """Decode a text such as `[f(a=1), g(b='x')]`, in the language of the category.

    Raises:
        CallSyntaxError: The text does not consist of calls.
    """
    text = text.strip(_CODE_FENCE)
    text = text if text.startswith("[") else f"[{text}"
    text = text if text.endswith("]") else f"{text}]"
    language = find_bfcl_language(category)
    if language == "python":
        return parse_python_calls(text.strip().strip("'"))
    call = (parse_java_call if language == "java" else parse_javascript_call)(text[1:-1])
    if call is None:
        raise CallSyntaxError("the text has no call")
    return [call]


def decode_native_calls(calls: Any) -> list[Call]:
    """Decode tool calls of the form `[{name: arguments}]`, with arguments as an object or as JSON text.

    Raises:
        CallSyntaxError: A call has another form, or its arguments are not a JSON object.
    """
    if not isinstance(calls, list):
        raise CallSyntaxError("the response has no tool calls")
    decoded = []
    for call in calls:
        if not isinstance(call, Mapping) or len(call) != 1:
            raise CallSyntaxError(f"not a tool call: {call!r:.200}")
        ((name, arguments),) = call.items()
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError) as error:
                raise CallSyntaxError(f"the arguments of `{name}` are not JSON: {error}") from None
        if not isinstance(arguments, Mapping):
            raise CallSyntaxError(f"the arguments of `{name}` are not an object")
        decoded.append(Call(name, arguments))
    return decoded


def match_bfcl(
    calls: Sequence[Call],
    category: str,
    functions: Sequence[Mapping[str, Any]],
    possible_answers: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]],
    *,
    native: bool,
) -> Mismatch | None:
    """Compare the calls of a response with the possible answers. Return None if they match.

    For native tool calls, a dot in the name of a function is an underscore, because services allow no dots.
    Categories of irrelevance expect no call, categories of relevance at least one.
    """
    if "irrelevance" in category:
        return Mismatch("unexpected call", f"`{calls[0].name}` is called") if calls else None
    if "relevance" in category:
        return None if calls else Mismatch("no call", "nothing is called")
    expected = []
    for answer in possible_answers:
        ((name, allowed),) = answer.items()
        function = next((one for one in functions if one["name"] == name), functions[0])
        if native:
            function = {**function, "name": function["name"].replace(".", "_")}
        expected.append((function, allowed))
    language = find_language(find_bfcl_language(category))
    if "parallel" in category:
        return match_any_order(calls, expected, language)
    if len(calls) != len(expected):
        return Mismatch("count", f"{len(calls)} calls instead of {len(expected)}")
    return match_call(calls[0], *expected[0], language)
