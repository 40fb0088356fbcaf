"""Tests of reading calls written as Java."""

from __future__ import annotations

import pytest

from assay.scoring.tool_calls.java_calls import parse_java_call
from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.python_calls import CallSyntaxError

pytest.importorskip("tree_sitter_java", reason="needs the extra `tools`")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('Search.find(text="a b", limit=10L)', Call("Search.find", {"text": "a b", "limit": "10L"})),
        ("find(mark='c')", Call("find", {"mark": "c"})),
        ("find(rows=new int[]{1, 2})", Call("find", {"rows": "new int[]{1,2}"})),
        (
            'find(rows=new ArrayList<String>(Arrays.asList("a", "b")))',
            Call("find", {"rows": 'new ArrayList<String>(Arrays.asList("a", "b"))'}),
        ),
        ("find(x=now())", Call("find", {"x": "now()"})),
        ("", None),
    ],
)
def test_a_call_is_read(source: str, expected: Call | None) -> None:
    assert parse_java_call(source) == expected


@pytest.mark.parametrize("source", ["find(", "find(x=1, x=2)", "find(a, b)", "<tool_call>{}</tool_call>"])
def test_other_text_is_refused(source: str) -> None:
    with pytest.raises(CallSyntaxError):
        parse_java_call(source)
