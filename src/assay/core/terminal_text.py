"""Makes text from datasets, tasks and models safe to print to a terminal."""

from __future__ import annotations

import re

__all__ = ["describe_invalid_name", "escape_control_characters"]

_UNSAFE_CHARACTERS = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\u202a-\\u202e\\u2066-\\u2069]"
)


def escape_control_characters(text: str) -> str:
    """Escape control characters (except newline and tab), lone surrogates and bidirectional marks.

    >>> escape_control_characters("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _UNSAFE_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def describe_invalid_name(name: str) -> str:
    """Return why a task or group cannot have this name; empty if it can.

    Names appear in tables, file names and URLs.

    >>> describe_invalid_name("a" + chr(0) + "b")
    "the name 'a\\\\x00b' contains control characters"
    """
    if escape_control_characters(name) == name and not re.search(r"[\n\t]", name):
        return ""
    return f"the name {name[:80]!r} contains control characters"
