"""The one-line reason for a document without a score."""

from __future__ import annotations

import traceback

import pytest

from assay.viewer.documents import failure_reasons
from assay.viewer.documents.failure_reasons import summarise_reason


def format_traceback(source: str) -> str:
    """The traceback of a helper file."""
    try:
        exec(compile(source, "folder/utils.py", "exec"), {})
    except Exception:  # noqa: BLE001 - any error of the source
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("", "unknown reason"),
        ("timeout: no answer in 120 s", "timeout: no answer in 120 s"),
        ("bad media: not there\n  at task.yaml:6, doc_to_visual", "bad media: not there (task.yaml:6, doc_to_visual)"),
        (format_traceback("\nint('x')"), "ValueError: invalid literal for int() with base 10: 'x' (utils.py:2)"),
        (format_traceback("raise ValueError('one\\ntwo')"), "ValueError: one (utils.py:1)"),
        ("not rendered: " + format_traceback("{}['n']"), "not rendered: KeyError: 'n' (utils.py:1)"),
        ("not rendered: round 2: " + format_traceback("1 / 0"), "not rendered: round 2: ZeroDivisionError: division by zero (utils.py:1)"),
        (format_traceback("raise KeyError"), "KeyError (utils.py:1)"),
        (format_traceback("import json\njson.loads('')"), "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (decoder.py:355)"),
        (format_traceback("raise ModuleNotFoundError(\"No module named 'sklearn.extra'\")"), "ModuleNotFoundError: No module named 'sklearn.extra' (utils.py:1); pip install scikit-learn"),
    ],
    ids=["nothing", "a message", "with its place", "a traceback", "several lines", "not rendered", "not rendered in a later round", "no message", "a dotted name", "a package that is not installed"],
)  # fmt: skip
def test_the_most_informative_line_is_returned(why: str, line: str) -> None:
    shown = summarise_reason(why)
    if "decoder.py" in line:  # the line of the standard library is not ours to fix
        shown, line = shown.rpartition(":")[0], line.rpartition(":")[0]
    assert shown == line


def test_the_location_is_the_last_line_of_task_code() -> None:
    source = "from assay.viewer.documents.failure_reasons import summarise_reason\nsummarise_reason(3)"
    assert str(failure_reasons.__file__) in format_traceback(source)
    assert summarise_reason(format_traceback(source)).endswith("(utils.py:2)")
