"""The page with the table of documents, filtered, sorted and searched on the server, fifty rows at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

from assay.store.database.tables import MAX_DOCUMENTS_PER_TASK
from assay.store.documents.details import DocumentSummary, read_document_summaries
from assay.store.filters.evaluation import build_name_catalog, read_display_values
from assay.store.filters.syntax import FilterError
from assay.store.index.columns import OUTCOMES, Columns
from assay.store.index.document_index import DocumentIndex
from assay.store.index.queries import (
    DocumentQuery,
    Facets,
    Sort,
    count_facets,
    find_categories,
    list_categories,
    select_documents,
)
from assay.store.runs.labels import group_labels, read_run_labels
from assay.store.runs.media_files import find_media_file
from assay.store.runs.run import Run
from assay.store.runs.saved_views import read_saved_views
from assay.viewer.documents.filter_trace import format_log_likelihood, format_value
from assay.viewer.documents.prompts import find_prompt_media, preview_prompt
from assay.viewer.web.pages.snippets import Segments, Term, build_snippet, collect_terms, mark_terms

__all__ = [
    "PAGE_SIZE",
    "Selection",
    "build_documents_context",
    "build_invalid_context",
    "build_unindexed_context",
    "format_query",
    "parse_query",
    "toggle_condition",
]

PAGE_SIZE = 50
_SORTS = ("document", "score", "length", "outcome")
_MAX_LENGTH = 160
_MAX_COLUMNS = 12
_MAX_THUMBNAILS = 3
_HIDDEN_COLUMNS = ("score", "length", "ending", "task", "document", "answer", "target")
"""Names that the table always shows, or that are too long for it."""

Given = Mapping[str, Sequence[str]]
"""The query of a URL: name -> values."""


def parse_query(given: Given) -> DocumentQuery:
    """Parse the query of a URL; invalid values are ignored."""

    def one(name: str) -> str:
        return given.get(name, [""])[0]

    sort = one("sort") or "document"
    categories = [tuple(pair.split("=", 1)) for pair in given.get("category", ()) if "=" in pair]
    return DocumentQuery(
        task=one("task"),
        outcomes=tuple(word for word in given.get("outcome", ()) if word in OUTCOMES),
        metric=int(one("metric")) if one("metric") in ("0", "1", "2", "3") else 0,
        low=_parse_number(one("low")),
        high=_parse_number(one("high")),
        text=one("q"),
        categories=cast("tuple[tuple[str, str], ...]", tuple(categories)),
        where=one("where").strip(),
        columns=tuple(dict.fromkeys(name for name in given.get("column", ()) if name))[:_MAX_COLUMNS],
        sort=cast("Sort", sort if sort in _SORTS else "document"),
        descending=one("order") == "desc",
    )


def format_query(query: DocumentQuery) -> dict[str, Any]:
    """Return the query parameters of a document query; defaults are omitted."""
    usual = DocumentQuery()
    return {
        "q": query.text,
        "task": query.task,
        "outcome": list(query.outcomes),
        "metric": query.metric or None,
        "low": None if query.low is None else f"{query.low:g}",
        "high": None if query.high is None else f"{query.high:g}",
        "category": [f"{name}={value}" for name, value in query.categories],
        "where": query.where,
        "column": list(query.columns),
        "sort": query.sort if query.sort != usual.sort else None,
        "order": "desc" if query.descending else None,
    }


class Selection:
    """The rows that a query selects, with counts for the filters."""

    def __init__(
        self, index: DocumentIndex, query: DocumentQuery, is_cancelled: Callable[[], bool] | None = None
    ) -> None:
        self.columns, self.rows = select_documents(index, query, is_cancelled=is_cancelled)
        self.facets: Facets = count_facets(self.columns, self.rows, query.metric)

    def find_place(self, task: str, position: int) -> int | None:
        """Return a document's place among the rows; None if it is not selected."""
        if task not in self.columns.tasks:
            return None
        wanted = (self.columns.position == position) & (self.columns.task == self.columns.tasks.index(task))
        found = np.flatnonzero(wanted[self.rows])
        return int(found[0]) if len(found) else None

    def document(self, place: int) -> tuple[str, int] | None:
        """Return the (task, number) of the document at a place."""
        if not 0 <= place < len(self.rows):
            return None
        row = self.rows[place]
        return self.columns.tasks[self.columns.task[row]], int(self.columns.position[row])


def toggle_condition(where: str, condition: str) -> str:
    """Return an expression with a condition added by `and`, or removed if it is there.

    >>> toggle_condition("score<1", "starred"), toggle_condition("score<1 and starred", "starred")
    ('score<1 and starred', 'score<1')
    """
    parts = where.split(" and ")
    if condition in parts:
        return " and ".join(part for part in parts if part != condition)
    if not where:
        return condition
    return (
        f"({where}) and {condition}"
        if re.search(r"\bor\b", where, re.IGNORECASE)
        else f"{where} and {condition}"
    )


def build_documents_context(
    run: Run, index: DocumentIndex, query: DocumentQuery, selection: Selection, page: int
) -> dict[str, Any]:
    """Build the template context of a page of the table."""
    columns, rows = selection.columns, selection.rows
    pages = max(1, -(-len(rows) // PAGE_SIZE))
    page = min(max(1, page), pages)
    chosen = rows[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    lines = read_document_summaries(run.journal, columns.ids[chosen].tolist())
    by_id = {line.id: line for line in lines}
    terms = collect_terms(query)
    labels = group_labels(read_run_labels(run.folder))
    values = _read_columns(index, columns, query, chosen)
    snippets = _SnippetReader(index, columns, terms)
    table_rows = []
    for number, row in enumerate(chosen.tolist()):
        line = by_id.get(int(columns.ids[row]))
        if line is not None:
            task = columns.tasks[columns.task[row]]
            score = float(columns.scores[query.metric, row])
            position = int(columns.position[row])
            built = _build_row(run, line, task, position, None if score != score else score)
            table_rows.append(
                built
                | {
                    "length": int(columns.length[row]),
                    "categories": [
                        f"{name}={value}" for name, value in find_categories(columns, row).items()
                    ],
                    "values": {name: listed[number] for name, listed in values.items()},
                    "labels": labels.get((task, position), []),
                    "snippet": snippets.build(row, built, line) if terms else None,
                }
            )
    names = columns.metrics.get(query.task, []) if query.task else []
    return {
        "rows": table_rows,
        "found": len(rows),
        "total": len(columns),
        "page_number": page,
        "pages": pages,
        "first": (page - 1) * PAGE_SIZE + 1,
        "query": query,
        "url": format_query(query),
        "facets": selection.facets,
        "tasks": columns.tasks,
        "metrics": names,
        "categories": list_categories(columns, query.task),
        "several_tasks": len(columns.tasks) > 1,
        "indexed": True,
        "mark": lambda text, name="": mark_terms(text, [one for one in terms if one.name in ("", name)]),
        **_build_filter_context(index, query, labels),
        "shown_columns": list(values),
    }


def build_invalid_context(index: DocumentIndex, query: DocumentQuery, error: FilterError) -> dict[str, Any]:
    """Build the page of an invalid filter expression: no rows, and the error in its place."""
    columns = index.columns
    return {
        "rows": [], "found": 0, "total": len(columns), "page_number": 1, "pages": 1, "first": 1, "query": query,
        "url": format_query(query), "facets": None, "tasks": columns.tasks,
        "metrics": columns.metrics.get(query.task, []) if query.task else [],
        "categories": list_categories(columns, query.task), "several_tasks": len(columns.tasks) > 1, "indexed": True,
        **_build_filter_context(index, query, group_labels(read_run_labels(index.journal.path.parent))),
        "error": error,
    }  # fmt: skip


def _build_filter_context(
    index: DocumentIndex, query: DocumentQuery, labels: Mapping[tuple[str, int], Any]
) -> dict[str, Any]:
    """Return what the filter box, the chips and the column picker need."""
    catalog = build_name_catalog(index)
    flags = ["labelled", "starred"] if labels else []
    return {
        "error": None,
        "names": sorted(
            (
                info
                for info in catalog.list_names()
                if info.kind != "flag" and info.name not in _HIDDEN_COLUMNS
            ),
            key=lambda info: (
                info.source != "field",
                info.description != "metric",
            ),  # the document's own columns first
        ),
        "shown_columns": [],
        "chips": [
            (flag, flag in query.where.split(" and "), toggle_condition(query.where, flag)) for flag in flags
        ],
        "has_labels": bool(labels),
        "views": read_saved_views(),
    }


def _read_columns(
    index: DocumentIndex, columns: Columns, query: DocumentQuery, rows: Any
) -> dict[str, list[Any]]:
    """Return the values of the chosen columns; unknown names are left out."""
    found = {}
    for name in query.columns:
        with suppress(FilterError):
            found[name] = [
                _shorten(value) if isinstance(value, str) else value
                for value in read_display_values(index, columns, name, rows)
            ]
    return found


class _SnippetReader:
    """Finds the text that a query found in a document, if the table does not show it."""

    def __init__(self, index: DocumentIndex, columns: Columns, terms: Sequence[Term]) -> None:
        self._index = index
        self._columns = columns
        self._terms = terms

    def build(self, row: int, shown: Mapping[str, Any], line: DocumentSummary) -> tuple[str, Segments] | None:
        """Return the name of a text and a snippet of it; None if the table shows the match."""
        for term in self._terms:
            visible = [shown["question"], shown["answer"], shown["target"]]
            if term.name in ("", "answer", "target") and any(term.find_end(text) for text in visible):
                continue
            for name, text in self._iterate_texts(term, row, line):
                if (snippet := build_snippet(text, [term])) is not None:
                    return name, snippet
        return None

    def _iterate_texts(self, term: Term, row: int, line: DocumentSummary) -> Iterator[tuple[str, str]]:
        if term.name:
            yield from self._read(term.name, row)
            return
        yield from self._read("response", row)
        for name, value in line.fields.items():
            yield name, format_value(value)

    def _read(self, name: str, row: int) -> Iterator[tuple[str, str]]:
        with suppress(FilterError):
            for value in read_display_values(self._index, self._columns, name, np.array([row])):
                if isinstance(value, str):
                    yield name, value


def build_unindexed_context(run: Run, page: int) -> dict[str, Any]:
    """Build a page in the order of the journal, without filters, while the index is being built."""
    total = sum(int(task.get("documents") or 0) for task in run.tasks.values())
    ids, has_more = run.journal.read_document_rows(limit=PAGE_SIZE, offset=PAGE_SIZE * (page - 1))
    tasks = run.journal.read_task_offsets()
    table_rows = []
    for line in read_document_summaries(run.journal, ids):
        first = line.id - line.id % MAX_DOCUMENTS_PER_TASK
        built = _build_row(run, line, tasks.get(first, ""), line.id - first, None)
        table_rows.append(built | {"values": {}, "labels": [], "snippet": None})
    return {
        "rows": table_rows,
        "found": total,
        "total": total,
        "page_number": page,
        "pages": page + (1 if has_more else 0),
        "first": PAGE_SIZE * (page - 1) + 1,
        "query": DocumentQuery(),
        "url": format_query(DocumentQuery()),
        "facets": None,
        "tasks": list(run.tasks),
        "metrics": [],
        "categories": {},
        "several_tasks": len(run.tasks) > 1,
        "indexed": False,
        "error": None,
        "names": [],
        "shown_columns": [],
        "chips": [],
        "has_labels": False,
        "views": read_saved_views(),
        "mark": lambda text, name="": [(text, False)],
    }


def _build_row(
    run: Run, line: DocumentSummary, task: str, position: int, score: float | None
) -> dict[str, Any]:
    facts = run.tasks.get(task, {})
    delimiter = str(facts.get("config", {}).get("fewshot_delimiter") or "\n\n")
    question, media = preview_prompt(line.prompt, line.fields, facts.get("n_shot"), delimiter)
    values = next(iter(line.answers.values()), [])
    return {
        "task": task,
        "position": position,
        "question": question,
        "media": media,
        "thumbnails": [
            part
            for part in find_prompt_media(line.prompt)[:_MAX_THUMBNAILS]
            if part.kind == "image" and find_media_file(run.folder, part.digest) is not None
        ],
        "target": _shorten(line.target),
        "answer": _format_answer(values, str(facts.get("output_type", ""))),
        "outcome": line.outcome,
        "why": line.why,
        "score": score,
    }


def _format_answer(values: Sequence[Any], output_type: str) -> str:
    """Return the answer in one line; for choices, the number of the most likely one."""
    if output_type == "loglikelihood_rolling":
        return _shorten(" | ".join(format_log_likelihood(value) for value in values[:8]))
    scored = [
        value[0]
        for value in values
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], (int, float))
    ]
    if len(scored) > 1 and len(scored) == len(values):
        return f"choice {scored.index(max(scored))}"
    return _shorten(" | ".join(format_value(value) for value in values[:8]))


def _shorten(value: Any) -> str:
    text = " ".join(format_value(value).split()) if value is not None else ""
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None
