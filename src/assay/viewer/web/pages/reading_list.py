"""The list beside a document: the documents around it, among those that the query selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from assay.store.documents.details import DocumentRecord, DocumentSummary, read_document_summaries
from assay.store.runs.run import Run
from assay.viewer.documents.prompts import preview_prompt
from assay.viewer.web.pages.documents import PAGE_SIZE, Selection
from assay.viewer.web.rendering import SITE, build_url

__all__ = ["build_reading_list", "build_unindexed_list"]

_BEFORE = 10
_AFTER = 40
_SITE_ROWS = 20
"""Rows of the list in a static site, where every document's page has a copy of it."""


def build_reading_list(
    run: Run, selection: Selection, key: str, url: Mapping[str, Any], *, task: str, position: int, metric: int
) -> dict[str, Any]:
    """Return the page of the selected documents that contains this one, and its neighbours."""
    place = selection.find_place(task, position)
    size = PAGE_SIZE if SITE.get() is None else _SITE_ROWS
    first = (place or 0) // size * size
    columns = selection.columns
    chosen = selection.rows[first : first + size].tolist()
    lines = {line.id: line for line in read_document_summaries(run.journal, columns.ids[chosen].tolist())}
    listed = []
    for row in chosen:
        name, number = columns.tasks[columns.task[row]], int(columns.position[row])
        line = lines.get(int(columns.ids[row]))
        score = float(columns.scores[metric, row])
        if line is not None:
            listed.append(
                _build_row(run, line, key, url, name, number)
                | {"score": None if score != score else score, "current": (name, number) == (task, position)}
            )
    return {
        "listed": listed,
        "waiting": False,
        "place": None if place is None else place + 1,
        "found": len(selection.rows),
        "before": None if place is None else selection.document(place - 1),
        "after": None if place is None else selection.document(place + 1),
        "page_number": None if place is None else place // PAGE_SIZE + 1,
    }


def build_unindexed_list(
    run: Run, record: DocumentRecord, key: str, url: Mapping[str, Any], *, filtered: bool
) -> dict[str, Any]:
    """Return the documents of the same task around this one, while there is no index; none if there are filters."""
    context: dict[str, Any] = {
        "listed": [], "waiting": True, "place": None, "found": None, "before": None, "after": None,
        "page_number": None,
    }  # fmt: skip
    if filtered:
        return context
    first = record.id - record.position
    numbers = range(max(0, record.position - _BEFORE), record.position + _AFTER + 1)
    lines = read_document_summaries(run.journal, [first + number for number in numbers])
    known = [line for line in lines if line.prompt or line.outcome != "open" or line.id == record.id]
    context["listed"] = [
        _build_row(run, line, key, url, record.task, line.id - first)
        | {"score": None, "current": line.id == record.id}
        for line in known
    ]
    at = next(index for index, line in enumerate(known) if line.id == record.id)
    context["before"] = (record.task, known[at - 1].id - first) if at else None
    context["after"] = (record.task, known[at + 1].id - first) if at + 1 < len(known) else None
    return context


def _build_row(
    run: Run, line: DocumentSummary, key: str, url: Mapping[str, Any], task: str, position: int
) -> dict[str, Any]:
    facts = run.tasks.get(task, {})
    delimiter = str(facts.get("config", {}).get("fewshot_delimiter") or "\n\n")
    question, _ = preview_prompt(line.prompt, line.fields, facts.get("n_shot"), delimiter)
    path = f"/runs/{quote(key, safe='')}/documents/{quote(task, safe='')}/{position}"
    return {
        "task": task,
        "position": position,
        "question": question,
        "outcome": line.outcome,
        "link": build_url(path, url),
    }
