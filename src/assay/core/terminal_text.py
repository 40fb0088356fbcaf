"""Makes text from datasets, tasks and models safe to print to a terminal."""

from __future__ import annotations

import re

__all__ = ["escape_control_characters"]

_UNSAFE_CHARACTERS = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\u202a-\\u202e\\u2066-\\u2069]"
)


def escape_control_characters(text: str) -> str:
    """Escape control characters (except newline and tab), lone surrogates and bidirectional marks.

    >>> escape_control_characters("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _UNSAFE_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
