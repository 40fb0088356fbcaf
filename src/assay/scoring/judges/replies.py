"""Reading a judge's reply. Only the form that was asked for counts; a number somewhere in a text does not.

Accepted, once reasoning between think tags is left out: a JSON object with the wanted keys (alone, in a code fence, or
at the end), lines of the form `VERDICT: …` that do not contradict each other, or a reply that is nothing but the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["UnreadableReply", "read_number", "read_numbers", "read_word"]

_THOUGHT = re.compile(r"<(think|thinking|analysis)>.*?</\1>", re.DOTALL)
_THOUGHT_END = re.compile(r"\A.*</(?:think|thinking|analysis)>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_DRESS = "*_`#>-. \t\"'"
"""What people and models put around a word without meaning anything by it."""


class UnreadableReply(ValueError):
    """The reply is not in the form that was asked for."""


def read_word(reply: str, key: str, words: Mapping[str, str]) -> str:
    """The one word of `words` (lower case -> its meaning) that the reply gives for `key`.

    >>> read_word("It matches.\\n**Verdict: CORRECT**", "verdict", {"correct": "correct", "incorrect": "incorrect"})
    'correct'
    """
    values = _values(reply, key)
    found = {words.get(_bare(str(value))) for value in values}
    if len(found) == 1 and None not in found:
        return str(found.pop())
    wanted = " or ".join(f"`{word}`" for word in words)
    if not values:
        raise UnreadableReply(f"no line `{key.upper()}: …` with {wanted}: {_shown(reply)}")
    said = ", ".join(f"`{value}`" for value in dict.fromkeys(map(str, values)))
    raise UnreadableReply(f"`{key}` is {said}, not one of {wanted}")


def read_number(reply: str, key: str, low: float, high: float) -> float:
    """The number in the range that the reply gives for `key`.

    >>> read_number('{"score": 7, "why": "9 of 10 facts are there"}', "score", 1, 10)
    7.0
    """
    values = _values(reply, key)
    if not values:
        raise UnreadableReply(f"no line `{key.upper()}: …` with a number: {_shown(reply)}")
    found = {_number(value, key, low, high) for value in values}
    if len(found) > 1:
        raise UnreadableReply(f"`{key}` is given as {' and as '.join(f'{one:g}' for one in sorted(found))}")
    return found.pop()


def read_numbers(reply: str, ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """A number for each name, each in its range: from one JSON object, or from one line each."""
    said = _object(reply, ranges)
    if said is not None:
        return {name: _number(said[name], name, low, high) for name, (low, high) in ranges.items()}
    return {name: read_number(reply, name, low, high) for name, (low, high) in ranges.items()}


def _values(reply: str, key: str) -> list[Any]:
    said = _object(reply, [key])
    if said is not None:
        return [said[key]]
    text = _spoken(reply)
    line = re.compile(
        rf"^[{re.escape(_DRESS)}\[]*{re.escape(key)}[{re.escape(_DRESS)}]*[:=](.*)$", re.IGNORECASE
    )
    found = [match[1] for match in map(line.match, text.splitlines()) if match]
    if not found and len(text.split()) == 1:
        found = [text]  # nothing but the value itself
    return [_bare(value) for value in found]


def _number(value: Any, key: str, low: float, high: float) -> float:
    if isinstance(value, bool) or value is None:
        raise UnreadableReply(f"`{key}` is {value!r}, not a number")
    text = _bare(str(value))
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:\s*/\s*(\d+(?:\.\d+)?))?", text)
    if match is None or (match[2] is not None and float(match[2]) != high):
        raise UnreadableReply(f"`{key}` is `{text[:60]}`, not a number from {low:g} to {high:g}")
    number = float(match[1])
    if not low <= number <= high:
        raise UnreadableReply(f"`{key}` is {number:g}, which is not between {low:g} and {high:g}")
    return number


def _object(reply: str, keys: Iterable[str]) -> Mapping[str, Any] | None:
    """The last JSON object of the reply that has all of the keys, letter case aside."""
    wanted = {key.casefold(): key for key in keys}
    text = _spoken(reply)
    for piece in reversed([*_tail_objects(text), text, *_FENCE.findall(text)]):
        try:
            value = json.loads(piece)
        except ValueError:
            continue
        if isinstance(value, dict):
            named = {str(key).casefold(): item for key, item in value.items()}
            if wanted.keys() <= named.keys():
                return {name: named[folded] for folded, name in wanted.items()}
    return None


def _tail_objects(text: str) -> Sequence[str]:
    """What may be an object at the very end of a text: from each `{` on, the outermost last."""
    text = text.rstrip()
    if not text.endswith("}"):
        return []
    starts = [at for at, character in enumerate(text) if character == "{"]
    return [text[at:] for at in reversed(starts[-40:])]


def _spoken(reply: str) -> str:
    """The reply without what the model thought before it."""
    return _THOUGHT_END.sub("", _THOUGHT.sub("", reply)).strip()


def _bare(value: str) -> str:
    """A word as it is meant: without dress, brackets and case.

    >>> _bare(" **[Correct]**. ")
    'correct'
    """
    return value.strip(_DRESS + "[]()").casefold()


def _shown(reply: str) -> str:
    text = " ".join(_spoken(reply).split())
    return f"the reply is {text[-120:]!r}" if text else "the reply is empty"
