"""Tests of the one line that says why a document has no score."""

from __future__ import annotations

import traceback

import pytest

from assay.viewer import reasons
from assay.viewer.reasons import reason


def raised(source: str) -> str:
    """The traceback of a helper file."""
    try:
        exec(compile(source, "folder/utils.py", "exec"), {})
    except Exception:  # noqa: BLE001 - any error of the source
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("", "no reason given"),
        ("timeout: no answer in 120 s", "timeout: no answer in 120 s"),
        ("bad media: not there\n  at task.yaml:6, doc_to_visual", "bad media: not there (task.yaml:6, doc_to_visual)"),
        (raised("\nint('x')"), "ValueError: invalid literal for int() with base 10: 'x' (utils.py:2)"),
        (raised("raise ValueError('one\\ntwo')"), "ValueError: one (utils.py:1)"),
        (raised("raise KeyError"), "KeyError (utils.py:1)"),
        (raised("import json\njson.loads('')"), "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (decoder.py:355)"),
    ],
    ids=["nothing", "a message", "with its place", "a traceback", "several lines", "no message", "a dotted name"],
)  # fmt: skip
def test_the_line_that_says_most(why: str, line: str) -> None:
    shown = reason(why)
    if "decoder.py" in line:  # the line of the standard library is not ours to fix
        shown, line = shown.rpartition(":")[0], line.rpartition(":")[0]
    assert shown == line


def test_assays_own_lines_are_not_where_a_helper_went_wrong() -> None:
    source = "from assay.viewer.reasons import reason\nreason(3)"
    assert str(reasons.__file__) in raised(source)
    assert reason(raised(source)).endswith("(utils.py:2)")
