"""Where an answer ends: stop strings, also across token boundaries, and the end of the reasoning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopStringDetector", "cut_at_stops", "split_thinking"]

_UNFINISHED = "\ufffd"
"""The replacement character that a tokenizer returns for an incomplete character."""

_LONGEST_CHARACTER = 4
"""Maximum tokens per character: a character has at most four bytes."""


_LONGEST_MARK = 64
"""Characters after which the beginning of a text cannot become an opening mark any more."""


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """Cut the text at each stop string in turn, as lm-eval does.

    >>> cut_at_stops("one\\n\\nQ: two", ["Q:", "\\n\\n"])
    'one'
    """
    for stop in stops:
        if stop:
            text = text.partition(stop)[0]
    return text


def split_thinking(text: str, end_mark: str) -> tuple[str | None, str]:
    """Split a text into reasoning and answer at the last end mark. Without a mark, everything is the answer.

    >>> split_thinking("hm, 4?</think> 5", "</think>")
    ('hm, 4?', '5')
    """
    if not end_mark or end_mark not in text:
        return None, text.lstrip() if end_mark else text
    reasoning, _, answer = text.rpartition(end_mark)
    return reasoning, answer.lstrip()


class StopStringDetector:
    """Detects when generated tokens complete a stop string, even if it spans several tokens.

    Only the tokens since the last complete character are decoded again, so the cost per token is constant.

    >>> detector = StopStringDetector(["</s>"], lambda tokens: "".join(map(chr, tokens)))
    >>> [detector.add_token(ord(letter)) for letter in "a</s>"]
    [False, False, False, False, True]
    """

    def __init__(
        self,
        stops: Sequence[str],
        decode: Callable[[list[int]], str],
        *,
        after: Sequence[str] = (),
        can_begin: Callable[[str], bool] | None = None,
    ) -> None:
        """`after`: ignore stop strings before one of these texts, the end of the reasoning. `can_begin`: whether a text so far
        begins with reasoning; once it does not, stop strings count."""
        self._stops = tuple(stop for stop in stops if stop)
        self._decode = decode
        self._after = tuple(mark for mark in after if mark)
        self._can_begin = can_begin if self._after else None
        self._head = ""
        self._tail_length = max((len(text) for text in (*self._stops, *self._after)), default=1) - 1
        self._tokens: list[int] = []
        self._start = self._complete = 0
        self._tail = ""

    def add_token(self, token: int) -> bool:
        """Add a token; return whether it completes a stop string."""
        if not self._stops:
            return False
        self._tokens.append(token)
        known = self._decode(self._tokens[self._start : self._complete])
        text = self._decode(self._tokens[self._start :])
        if text.endswith(_UNFINISHED) and len(self._tokens) - self._complete < _LONGEST_CHARACTER:
            return False  # the character is not complete yet
        tail = self._tail + text[len(known) :]
        self._start, self._complete = self._complete, len(self._tokens)
        if self._can_begin is not None:
            tail = self._look_for_reasoning(text[len(known) :], tail)
        end = next((mark for mark in self._after if mark in tail), None)
        if end is not None:
            tail, self._after = tail.partition(end)[2], ()
        self._tail = tail[-self._tail_length :] if self._tail_length else ""
        return not self._after and any(stop in tail for stop in self._stops)

    def _look_for_reasoning(self, added: str, tail: str) -> str:
        """Decide from the beginning of the text whether it has reasoning; return the text to look for stop strings in."""
        assert self._can_begin is not None
        self._head += added
        if not self._can_begin(self._head):
            self._after, self._can_begin = (), None
            return self._head
        if len(self._head.lstrip()) > _LONGEST_MARK:
            self._can_begin = None
        return tail
