"""The page with the table of documents, filtered, sorted and searched on the server, fifty rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from assay.store.database.tables import MAX_DOCUMENTS_PER_TASK
from assay.store.documents.details import DocumentSummary, read_document_summaries
from assay.store.index.columns import OUTCOMES
from assay.store.index.document_index import DocumentIndex
from assay.store.index.queries import (
    DocumentQuery,
    Facets,
    Sort,
    count_facets,
    list_categories,
    select_documents,
)
from assay.store.runs.run import Run
from assay.viewer.documents.filter_trace import format_value
from assay.viewer.documents.prompts import preview_prompt

__all__ = [
    "PAGE_SIZE",
    "Selection",
    "build_documents_context",
    "build_unindexed_context",
    "format_query",
    "parse_query",
]

PAGE_SIZE = 50
_SORTS = ("document", "score", "length", "outcome")
_MAX_LENGTH = 160

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
        "sort": query.sort if query.sort != usual.sort else None,
        "order": "desc" if query.descending else None,
    }


class Selection:
    """The rows that a query selects, with counts for the filters."""

    def __init__(self, index: DocumentIndex, query: DocumentQuery) -> None:
        self.columns, self.rows = select_documents(index, query)
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
    table_rows = []
    for row in chosen.tolist():
        line = by_id.get(int(columns.ids[row]))
        if line is not None:
            task = columns.tasks[columns.task[row]]
            score = float(columns.scores[query.metric, row])
            table_rows.append(
                _build_row(run, line, task, int(columns.position[row]), None if score != score else score)
                | {"length": int(columns.length[row])}
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
    }


def build_unindexed_context(run: Run, page: int) -> dict[str, Any]:
    """Build a page in the order of the journal, without filters, while the index is being built."""
    total = sum(int(task.get("documents") or 0) for task in run.tasks.values())
    ids, has_more = run.journal.read_document_rows(limit=PAGE_SIZE, offset=PAGE_SIZE * (page - 1))
    tasks = run.journal.read_task_offsets()
    table_rows = []
    for line in read_document_summaries(run.journal, ids):
        first = line.id - line.id % MAX_DOCUMENTS_PER_TASK
        table_rows.append(_build_row(run, line, tasks.get(first, ""), line.id - first, None))
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
        "target": _shorten(line.target),
        "answer": _format_answer(values),
        "outcome": line.outcome,
        "why": line.why,
        "score": score,
    }


def _format_answer(values: Sequence[Any]) -> str:
    """Return the answer in one line; for choices, the number of the most likely one."""
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
