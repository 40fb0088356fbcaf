"""Text from data, tasks and models as a terminal may safely show it."""

from __future__ import annotations

import re

__all__ = ["printable"]

_UNSAFE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\u202a-\\u202e\\u2066-\\u2069]")


def printable(text: str) -> str:
    """The text with control characters (all but newline and tab), half characters and direction marks written out.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
