"""What a search or a filter found is marked in short texts and cut out of long ones."""

from __future__ import annotations

from typing import Any

from assay.store.index.queries import DocumentQuery
from assay.viewer.web.pages.snippets import build_snippet, collect_terms, mark_terms


def mark(shown: str, /, **query: Any) -> str:
    return "".join(
        f"[{part}]" if on else part for part, on in mark_terms(shown, collect_terms(DocumentQuery(**query)))
    )


def test_words_phrases_and_patterns_are_marked() -> None:
    assert mark("Zebra and zebras", text="zebra") == "[Zebra] and [zebra]s"
    assert mark("the capital  of it", text='"capital of"') == "the [capital  of] it"
    assert mark("12 or 345", where=r"answer~/\d+/") == "[12] or [345]"
    assert mark("a.b acb", where='response~"a.b" or "acb"') == "[a.b] [acb]"
    assert mark("abc", text="ab bc") == "[ab]c"


def test_conditions_after_not_and_invalid_expressions_mark_nothing() -> None:
    assert mark("12", where=r"not answer~/\d+/") == "12"
    assert mark("12", where="answer~/(") == "12"
    assert mark("", text="x") == ""


def test_a_snippet_surrounds_the_first_match() -> None:
    text = "word " * 4000 + "the needle\nis here " + "more " * 4000
    snippet = build_snippet(text, collect_terms(DocumentQuery(where=r"response~/needle\s\w+/")))
    assert snippet is not None
    assert [part for part, on in snippet if on] == ["needle is"]
    assert snippet[0] == ("…", False)
    assert snippet[-1] == ("…", False)
    assert sum(len(part) for part, _ in snippet) < 300
    assert build_snippet("nothing", collect_terms(DocumentQuery(text="needle"))) is None
