"""Routes of comparisons: several runs, and one document of several runs."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from assay.store.documents.details import read_document
from assay.viewer.web.pages.comparison import (
    build_comparison_context,
    build_flips_context,
    compare_runs,
    mark_differences,
    read_signatures,
)
from assay.viewer.web.pages.document import build_document_context
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_routes import read_page_number, render_loading_page

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}
_MAX_RUNS = 8


def _read_run_keys(request: Request) -> list[str]:
    keys = list(dict.fromkeys(request.query_params.getlist("run")))[:_MAX_RUNS]
    for key in keys:
        request.app.state.catalog.folder(key)
    return keys


def _sort_baseline_first(keys: list[str], started: dict[str, float], baseline: str) -> list[str]:
    """Sort runs by start time, so that the oldest is the baseline; a baseline in the URL comes first."""
    return sorted(keys, key=lambda key: (key != baseline, started.get(key.partition("@")[0], 0.0)))


def _show_comparison(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    entries = request.app.state.entries
    every = [entries.get(key, folder) for key, folder in catalog.folders().items()]
    every.sort(key=lambda entry: -(entry.started or 0.0))
    keys = _sort_baseline_first(
        _read_run_keys(request),
        {entry.key: entry.started or 0.0 for entry in every},
        request.query_params.get("baseline", ""),
    )
    if len(keys) < 2:
        return HTMLResponse(
            render("compare.html", page="compare", keys=keys, entries=every, compared=None), headers=_NO_STORE
        )
    metric = request.query_params.get("metric", "")
    job = request.app.state.jobs.get(
        ("compare", tuple(keys), metric),
        read_signatures(catalog, keys),
        lambda: compare_runs(catalog, keys, metric),
        wait_s=1.5,
        stale=True,
    )
    if not job.ready:
        return render_loading_page("Comparing runs", "Reading all documents of the runs.", "")
    compared = job.result()
    given = request.query_params
    flips = build_flips_context(
        catalog,
        compared,
        against=given.get("against", ""),
        task=given.get("task", ""),
        side=given.get("side", ""),
        page=read_page_number(request),
    )
    url = {
        "run": keys,
        "baseline": given.get("baseline", ""),
        "metric": metric,
        "against": given.get("against", ""),
        "task": given.get("task", ""),
        "side": given.get("side", ""),
    }
    return HTMLResponse(
        render(
            "compare.html",
            page="compare",
            keys=keys,
            entries=every,
            models={entry.key: entry.model for entry in every},
            compared=compared,
            metric=metric,
            url=url,
            flips=flips,
            **build_comparison_context(compared),
        ),
        headers=_NO_STORE,
    )


def _show_document(request: Request) -> Response:
    """Show one document with the answers of each run."""
    catalog: RunCatalog = request.app.state.catalog
    keys = _read_run_keys(request)
    given = request.query_params
    task = given.get("task", "")
    numbers = given.getlist("document")
    if not keys or not numbers or not all(number.isdecimal() for number in numbers):
        raise HTTPException(404, "Missing `run` or `document` in the URL.")
    columns: list[dict[str, Any]] = []
    for number, key in enumerate(keys):
        position = int(numbers[min(number, len(numbers) - 1)])
        state = catalog.index(key)
        with catalog.run(key) as run:
            find = state.index.fingerprints.find if state.index else None
            record = read_document(run.journal, task, position, find)
            context = build_document_context(record, run.tasks.get(task, {}), run.folder) if record else None
            columns.append({"key": key, "model": run.model, "position": position, "context": context})
    if all(column["context"] is None for column in columns):
        raise HTTPException(404, f"None of the runs has document {numbers[0]} of task {task}.")
    first = next(column["context"] for column in columns if column["context"] is not None)
    texts = [_read_texts(column["context"]) for column in columns]
    for column, column_texts in zip(columns, texts, strict=True):
        column["answers"] = [
            mark_differences(texts[0][position] if position < len(texts[0]) else "", text)
            for position, text in enumerate(column_texts)
        ]
    return HTMLResponse(
        render(
            "compare_document.html",
            page="compare",
            key=keys[0],
            keys=keys,
            task=task,
            first=first,
            columns=columns,
            numbers=numbers,
        ),
        headers=_NO_STORE,
    )


def _read_texts(context: dict[str, Any] | None) -> list[str]:
    if context is None:
        return []
    return [
        context["response_text"](record.response) if record.response is not None else ""
        for record in context["responses"]
    ]


routes = [Route("/compare", _show_comparison), Route("/compare/document", _show_document)]
