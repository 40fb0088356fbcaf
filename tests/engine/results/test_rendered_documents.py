"""Rendered documents in a form that can be compared."""

from __future__ import annotations

import pytest

from assay.engine.results.rendered_documents import cut_around_difference, index_requests


def test_requests_with_tools_are_indexed_like_others() -> None:
    content = {"prompts": ["p"], "requests": [[0, 0, "generate", 0, "s", "f", 0]], "options": [{"tools": []}]}
    assert index_requests(content) == {(0, 0): ("generate", "p", "s")}


@pytest.mark.parametrize(
    ("was", "is_now", "expected"),
    [
        ("What is 1?", "What is 2?", ("What is 1?", "What is 2?")),
        ("short", "shorter", ("short", "shorter")),
        ("x" * 300 + "a", "x" * 300 + "b", ("…" + "x" * 50 + "a", "…" + "x" * 50 + "b")),
    ],
)
def test_texts_are_cut_around_their_difference(was: str, is_now: str, expected: tuple[str, str]) -> None:
    assert cut_around_difference(was, is_now) == expected
