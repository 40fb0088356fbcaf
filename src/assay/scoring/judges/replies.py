"""Parse the replies of judges. Only the required form counts, not a number anywhere in the text.

Accepted, after reasoning between think tags is removed: a JSON object with the required keys (alone, in a code fence, or
at the end), lines of the form `VERDICT: …` that do not contradict each other, or a reply that is only the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["UnreadableReply", "read_number", "read_numbers", "read_word"]

_REASONING = re.compile(r"<(think|thinking|analysis)>.*?</\1>", re.DOTALL)
_REASONING_END = re.compile(r"\A.*</(?:think|thinking|analysis)>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_DECORATION = "*_`#>-. \t\"'"
"""Decoration around a word, without meaning."""


class UnreadableReply(ValueError):
    """The reply does not have the required form."""


def read_word(reply: str, key: str, words: Mapping[str, str]) -> str:
    """Return the value in `words` (lower-case word -> value) that the reply gives for `key`.

    >>> read_word("It matches.\\n**Verdict: CORRECT**", "verdict", {"correct": "correct", "incorrect": "incorrect"})
    'correct'
    """
    values = _find_values(reply, key)
    found = {words.get(_normalise_word(str(value))) for value in values}
    if len(found) == 1 and None not in found:
        return str(found.pop())
    wanted = " or ".join(f"`{word}`" for word in words)
    if not values:
        raise UnreadableReply(f"no line `{key.upper()}: …` with {wanted}: {_quote_reply(reply)}")
    found_object = ", ".join(f"`{value}`" for value in dict.fromkeys(map(str, values)))
    raise UnreadableReply(f"`{key}` is {found_object}, not one of {wanted}")


def read_number(reply: str, key: str, low: float, high: float) -> float:
    """Return the number between `low` and `high` that the reply gives for `key`.

    >>> read_number('{"score": 7, "why": "9 of 10 facts are there"}', "score", 1, 10)
    7.0
    """
    values = _find_values(reply, key)
    if not values:
        raise UnreadableReply(f"no line `{key.upper()}: …` with a number: {_quote_reply(reply)}")
    found = {_parse_number(value, key, low, high) for value in values}
    if len(found) > 1:
        raise UnreadableReply(f"`{key}` is given as {' and as '.join(f'{one:g}' for one in sorted(found))}")
    return found.pop()


def read_numbers(reply: str, ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return a number for each name, each in its range, from one JSON object or from one line each."""
    found_object = _find_object(reply, ranges)
    if found_object is not None:
        return {
            name: _parse_number(found_object[name], name, low, high) for name, (low, high) in ranges.items()
        }
    return {name: read_number(reply, name, low, high) for name, (low, high) in ranges.items()}


def _find_values(reply: str, key: str) -> list[Any]:
    found_object = _find_object(reply, [key])
    if found_object is not None:
        return [found_object[key]]
    text = _strip_reasoning(reply)
    line = re.compile(
        rf"^[{re.escape(_DECORATION)}\[]*{re.escape(key)}[{re.escape(_DECORATION)}]*[:=](.*)$", re.IGNORECASE
    )
    found = [match[1] for match in map(line.match, text.splitlines()) if match]
    if not found and len(text.split()) == 1:
        found = [text]  # only the value
    return [_normalise_word(value) for value in found]


def _parse_number(value: Any, key: str, low: float, high: float) -> float:
    if isinstance(value, bool) or value is None:
        raise UnreadableReply(f"`{key}` is {value!r}, not a number")
    text = _normalise_word(str(value))
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:\s*/\s*(\d+(?:\.\d+)?))?", text)
    if match is None or (match[2] is not None and float(match[2]) != high):
        raise UnreadableReply(f"`{key}` is `{text[:60]}`, not a number from {low:g} to {high:g}")
    number = float(match[1])
    if not low <= number <= high:
        raise UnreadableReply(f"`{key}` is {number:g}, which is not between {low:g} and {high:g}")
    return number


def _find_object(reply: str, keys: Iterable[str]) -> Mapping[str, Any] | None:
    """Return the last JSON object of the reply that has all keys, ignoring case."""
    wanted = {key.casefold(): key for key in keys}
    text = _strip_reasoning(reply)
    for piece in reversed([*_tail_objects(text), text, *_FENCE.findall(text)]):
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            named = {str(key).casefold(): item for key, item in value.items()}
            if wanted.keys() <= named.keys():
                return {name: named[folded] for folded, name in wanted.items()}
    return None


def _tail_objects(text: str) -> Sequence[str]:
    """Return candidates for a JSON object at the end of a text, the outermost last."""
    text = text.rstrip()
    if not text.endswith("}"):
        return []
    starts = [index for index, character in enumerate(text) if character == "{"]
    return [text[start:] for start in reversed(starts[-40:])]


def _strip_reasoning(reply: str) -> str:
    """Return the reply without reasoning."""
    return _REASONING_END.sub("", _REASONING.sub("", reply)).strip()


def _normalise_word(value: str) -> str:
    """Return a word without decoration and brackets, in lower case.

    >>> _normalise_word(" **[Correct]**. ")
    'correct'
    """
    return value.strip(_DECORATION + "[]()").casefold()


def _quote_reply(reply: str) -> str:
    text = " ".join(_strip_reasoning(reply).split())
    return f"the reply is {text[-120:]!r}" if text else "the reply is empty"
