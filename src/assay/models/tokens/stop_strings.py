"""Where an answer ends: stop strings, exact also when they cross token borders, and the end of thinking."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopWatch", "cut_at_stops", "split_thinking"]

_UNFINISHED = "\ufffd"
"""What a tokenizer writes for bytes that are no character yet."""

_LONGEST_CHARACTER = 4
"""Tokens a character may take: it has at most four bytes."""


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string; the stops are looked for in their order, as lm-eval does it.

    >>> cut_at_stops("one\\n\\nQ: two", ["Q:", "\\n\\n"])
    'one'
    """
    for stop in stops:
        if stop:
            text = text.partition(stop)[0]
    return text


def split_thinking(text: str, end_mark: str) -> tuple[str | None, str]:
    """What was thought and what was answered. Without the mark everything is answer; after its last occurrence the answer begins.

    >>> split_thinking("hm, 4?</think> 5", "</think>")
    ('hm, 4?', '5')
    """
    if not end_mark or end_mark not in text:
        return None, text.lstrip() if end_mark else text
    thought, _, answer = text.rpartition(end_mark)
    return thought, answer.lstrip()


class StopWatch:
    """Hears tokens one by one and says when a stop string has been written, however the tokens cut it.

    Only the tokens since the last sure character are decoded again, so the cost of a token does not grow with the text.

    >>> watch = StopWatch(["</s>"], lambda tokens: "".join(map(chr, tokens)))
    >>> [watch.hear(ord(letter)) for letter in "a</s>"]
    [False, False, False, False, True]
    """

    def __init__(self, stops: Sequence[str], decode: Callable[[list[int]], str], *, after: str = "") -> None:
        """`after`: stop strings count only behind this text (the end of thinking)."""
        self._stops = tuple(stop for stop in stops if stop)
        self._decode = decode
        self._after = after
        self._keep = max((len(stop) for stop in (*self._stops, after)), default=1) - 1
        self._tokens: list[int] = []
        self._start = self._sure = 0
        self._tail = ""

    def hear(self, token: int) -> bool:
        """Whether a stop string is complete with this token."""
        if not self._stops:
            return False
        self._tokens.append(token)
        known = self._decode(self._tokens[self._start : self._sure])
        text = self._decode(self._tokens[self._start :])
        if text.endswith(_UNFINISHED) and len(self._tokens) - self._sure < _LONGEST_CHARACTER:
            return False  # the character may still become another one
        tail = self._tail + text[len(known) :]
        self._start, self._sure = self._sure, len(self._tokens)
        if self._after and self._after in tail:
            tail, self._after = tail.partition(self._after)[2], ""
        self._tail = tail[-self._keep :] if self._keep else ""
        return not self._after and any(stop in tail for stop in self._stops)
