"""Marks what a search or a filter expression found, and cuts a snippet around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.store.filters.syntax import (
    And,
    Condition,
    Expression,
    FilterError,
    Or,
    Search,
    Value,
    parse_expression,
)
from assay.store.index.queries import DocumentQuery
from assay.store.index.text_search import parse_search_words

__all__ = ["Segments", "Term", "build_snippet", "collect_terms", "mark_terms"]

Segments = list[tuple[str, bool]]
"""A text in parts: (text, whether it is marked)."""

_MAX_MARKS = 20
_SNIPPET_LENGTH = 180
_WINDOW = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Something that was searched for."""

    name: str
    """The name in the expression whose value must contain it; empty for any text."""

    find_end: Callable[[str], int | None]
    """Returns where the first match ends."""

    find_spans: Callable[[str], list[tuple[int, int]]]


def collect_terms(query: DocumentQuery) -> list[Term]:
    """Return the terms of a query that a matching document contains; conditions after `not` have none."""
    terms = [_build_word_term("", word) for word in parse_search_words(query.text) if word[:1] != "#"]
    try:
        expression = parse_expression(query.where)
    except FilterError:
        return terms
    if expression is not None:
        _collect(expression, query.where, terms)
    return terms


def _collect(expression: Expression, where: str, terms: list[Term]) -> None:
    match expression:
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                _collect(operand, where, terms)
        case Search(text=text):
            terms.extend(_build_word_term("", word) for word in parse_search_words(f'"{text}"'))
        case Condition(name=name, operator="~", value=Value() as value):
            written = where[name.start : name.end]
            if value.pattern is not None:
                terms.append(
                    Term(name=written, find_end=value.pattern.find_end, find_spans=value.pattern.find_spans)
                )
            else:
                terms.append(_build_word_term(written, value.text))
        case _:
            pass


def _build_word_term(name: str, text: str) -> Term:
    """Return the term of a text; any white space matches white space."""
    words = [re.escape(word) for word in text.split()]
    pattern = re.compile(r"\s+".join(words) if words else r"\Z(?!)", re.IGNORECASE)

    def find_end(given: str) -> int | None:
        found = pattern.search(given)
        return None if found is None else found.end()

    def find_spans(given: str) -> list[tuple[int, int]]:
        spans = []
        for found in pattern.finditer(given):
            spans.append(found.span())
            if len(spans) == _MAX_MARKS:
                break
        return spans

    return Term(name=name, find_end=find_end, find_spans=find_spans)


def mark_terms(text: str, terms: Sequence[Term]) -> Segments:
    """Return a short text with the terms marked.

    >>> mark_terms("a zebra", collect_terms(DocumentQuery(text="zebra")))
    [('a ', False), ('zebra', True)]
    """
    spans = sorted(span for term in terms for span in term.find_spans(text))
    segments: Segments = []
    at = 0
    for start, end in spans:
        if start < at:
            continue
        if start > at:
            segments.append((text[at:start], False))
        segments.append((text[start:end], True))
        at = end
    if at < len(text) or not segments:
        segments.append((text[at:], False))
    return segments


def build_snippet(text: str, terms: Sequence[Term]) -> Segments | None:
    """Return the part of a text around the first match of a term, in one line; None without a match."""
    for term in terms:
        end = term.find_end(text)
        if end is None:
            continue
        window_start = max(0, end - _WINDOW)
        window = text[window_start : end + _WINDOW]
        spans = term.find_spans(window)
        start, stop = spans[0] if spans else (max(0, end - window_start - 1), end - window_start)
        left = max(0, start - _SNIPPET_LENGTH // 3)
        right = min(len(window), max(stop, left + _SNIPPET_LENGTH))
        shown = " ".join(window[left:right].split())
        marked = mark_terms(shown, [term])
        before = "…" if left or window_start else ""
        after = "…" if right < len(window) or end + _WINDOW < len(text) else ""
        return [(before, False), *marked, (after, False)] if before or after else marked
    return None
