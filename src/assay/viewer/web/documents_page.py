"""The table of documents: any number of rows, filtered, sorted and searched on the server, fifty at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from assay.store.index.columns import OUTCOMES
from assay.store.index.documents import DocumentIndex
from assay.store.index.querying import DocumentQuery, Facets, Sort, facets, interesting_categories, select
from assay.store.one_document import DocumentLine, read_lines
from assay.store.runs import Run
from assay.store.tables import DOCUMENTS_PER_TASK
from assay.viewer.prompts import preview
from assay.viewer.web.filter_steps import shown

__all__ = ["PAGE", "Selection", "documents_context", "read_query", "unindexed_context", "url_query"]

PAGE = 50
_SORTS = ("document", "score", "length", "outcome")
_SHORT = 160

Given = Mapping[str, Sequence[str]]
"""The query of an address: name -> values."""


def read_query(given: Given) -> DocumentQuery:
    """What an address asks for; what makes no sense in it is passed over."""

    def one(name: str) -> str:
        return given.get(name, [""])[0]

    sort = one("sort") or "document"
    categories = [tuple(pair.split("=", 1)) for pair in given.get("category", ()) if "=" in pair]
    return DocumentQuery(
        task=one("task"),
        outcomes=tuple(word for word in given.get("outcome", ()) if word in OUTCOMES),
        metric=int(one("metric")) if one("metric") in ("0", "1", "2", "3") else 0,
        low=_number(one("low")),
        high=_number(one("high")),
        text=one("q"),
        categories=cast("tuple[tuple[str, str], ...]", tuple(categories)),
        sort=cast("Sort", sort if sort in _SORTS else "document"),
        descending=one("order") == "desc",
    )


def url_query(query: DocumentQuery) -> dict[str, Any]:
    """The same as an address says it; what is usual is left out."""
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
    """The rows a query finds, and counts among them."""

    def __init__(self, index: DocumentIndex, query: DocumentQuery) -> None:
        self.columns, self.rows = select(index, query)
        self.facets: Facets = facets(self.columns, self.rows, query.metric)

    def place(self, task: str, position: int) -> int | None:
        """Where a document stands among the rows; None where it is not among them."""
        if task not in self.columns.tasks:
            return None
        wanted = (self.columns.position == position) & (self.columns.task == self.columns.tasks.index(task))
        found = np.flatnonzero(wanted[self.rows])
        return int(found[0]) if len(found) else None

    def document(self, place: int) -> tuple[str, int] | None:
        """(task, number) of the document at a place."""
        if not 0 <= place < len(self.rows):
            return None
        row = self.rows[place]
        return self.columns.tasks[self.columns.task[row]], int(self.columns.position[row])


def documents_context(
    run: Run, index: DocumentIndex, query: DocumentQuery, selection: Selection, page: int
) -> dict[str, Any]:
    """A page of the table."""
    columns, rows = selection.columns, selection.rows
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(1, page), pages)
    chosen = rows[(page - 1) * PAGE : page * PAGE]
    lines = read_lines(run.journal, columns.ids[chosen].tolist())
    by_id = {line.id: line for line in lines}
    listed = []
    for row in chosen.tolist():
        line = by_id.get(int(columns.ids[row]))
        if line is not None:
            task = columns.tasks[columns.task[row]]
            score = float(columns.scores[query.metric, row])
            listed.append(
                _line(run, line, task, int(columns.position[row]), None if score != score else score)
                | {"length": int(columns.length[row])}
            )
    names = columns.metrics.get(query.task, []) if query.task else []
    return {
        "rows": listed,
        "found": len(rows),
        "total": len(columns),
        "page_number": page,
        "pages": pages,
        "first": (page - 1) * PAGE + 1,
        "query": query,
        "url": url_query(query),
        "facets": selection.facets,
        "tasks": columns.tasks,
        "metrics": names,
        "categories": interesting_categories(columns, query.task),
        "several_tasks": len(columns.tasks) > 1,
        "indexed": True,
    }


def unindexed_context(run: Run, page: int) -> dict[str, Any]:
    """A page in the order of the journal, for while the index is being made."""
    total = sum(int(task.get("documents") or 0) for task in run.tasks.values())
    ((count,),) = run.journal.query("SELECT count(*) FROM (SELECT 1 FROM asked LIMIT ?)", (PAGE * page + 1,))
    ids = [
        number
        for (number,) in run.journal.query(
            "SELECT id FROM asked ORDER BY id LIMIT ? OFFSET ?", (PAGE, PAGE * (page - 1))
        )
    ]
    tasks = dict(run.journal.query("SELECT first, name FROM tasks"))
    listed = []
    for line in read_lines(run.journal, ids):
        first = line.id - line.id % DOCUMENTS_PER_TASK
        listed.append(_line(run, line, tasks.get(first, ""), line.id - first, None))
    return {
        "rows": listed,
        "found": total,
        "total": total,
        "page_number": page,
        "pages": page + (1 if count > PAGE * page else 0),
        "first": PAGE * (page - 1) + 1,
        "query": DocumentQuery(),
        "url": url_query(DocumentQuery()),
        "facets": None,
        "tasks": list(run.tasks),
        "metrics": [],
        "categories": {},
        "several_tasks": len(run.tasks) > 1,
        "indexed": False,
    }


def _line(run: Run, line: DocumentLine, task: str, position: int, score: float | None) -> dict[str, Any]:
    facts = run.tasks.get(task, {})
    delimiter = str(facts.get("config", {}).get("fewshot_delimiter") or "\n\n")
    question, media = preview(line.prompt, line.fields, facts.get("n_shot"), delimiter)
    values = next(iter(line.answers.values()), [])
    return {
        "task": task,
        "position": position,
        "question": question,
        "media": media,
        "target": _short(line.target),
        "answer": _answer(values),
        "outcome": line.outcome,
        "why": line.why,
        "score": score,
    }


def _answer(values: Sequence[Any]) -> str:
    """The answer in a line. Of choices, the likeliest one's number."""
    scored = [
        value[0]
        for value in values
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], (int, float))
    ]
    if len(scored) > 1 and len(scored) == len(values):
        return f"choice {scored.index(max(scored))}"
    return _short(" | ".join(shown(value) for value in values[:8]))


def _short(value: Any) -> str:
    text = " ".join(shown(value).split()) if value is not None else ""
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None
