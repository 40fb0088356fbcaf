"""Suggestions while an expression is typed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.store.filters.completion import complete_expression
from assay.store.filters.evaluation import build_name_catalog
from assay.store.index.document_index import DocumentIndex


@pytest.mark.parametrize(
    ("text", "start", "included", "excluded"),
    [
        ("", 0, ["score", "length"], ["and"]),
        ("sco", 0, ["score", "scored"], ["length"]),
        ("score", 0, ["scored"], ["score"]),
        ("score ", 6, ["<", ">="], ["~", "and"]),
        ("subject ", 8, ["=", "~", "in"], ["<"]),
        ("score<1 ", 8, ["and", "or"], ["score"]),
        ("truncated ", 10, ["and", "or"], ["<"]),
        ("subject=", 8, ["Algebra", '"Number Theory"'], ["score"]),
        ("subject=num", 8, ['"Number Theory"'], ["Algebra"]),
        ('subject="num', 8, ['"Number Theory"'], ["Algebra"]),
        ("ending=tr", 7, ["truncated"], ["scored"]),
        ("task in (sums, ", 15, ["errors"], ["score"]),
        ("exact_match[", 12, ["find", "all"], ["score"]),
        ("score<1 and not le", 16, ["length", "level"], ["not"]),
        ("`two words` ", 12, ["="], ["and"]),
        ("answer~/sco", 7, [], ["score"]),
        ("doc.", 0, ["doc.answer"], ["score"]),
    ],
)
def test_what_can_follow_is_suggested(
    index: DocumentIndex, text: str, start: int, included: list[str], excluded: list[str]
) -> None:
    found = complete_expression(text, len(text), build_name_catalog(index))
    listed = [one.text for one in found.suggestions]
    assert found.start == start
    assert set(included) <= set(listed)
    assert not set(excluded) & set(listed)


def test_the_word_around_the_cursor_is_replaced(index: DocumentIndex) -> None:
    found = complete_expression("leng>3", 2, build_name_catalog(index))
    assert (found.start, found.end) == (0, 4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("score<>=!~ ()[],/\"'`1 andinot", max_size=20), cursor=st.integers(-3, 30))
def test_any_text_can_be_completed(index: DocumentIndex, text: str, cursor: int) -> None:
    found = complete_expression(text, cursor, build_name_catalog(index))
    assert 0 <= found.start <= found.end <= len(text)
