"""Routes of comparisons: several runs, and one document of several runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from assay.store.documents.details import read_document, scan_response_rows
from assay.viewer.web.background_jobs import Job
from assay.viewer.web.pages.comparison import (
    build_comparison_context,
    build_flips_context,
    compare_runs,
    find_flip_neighbours,
    mark_differences,
    read_signatures,
)
from assay.viewer.web.pages.document import build_document_context
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_routes import JOB_WAIT_S, read_directions, read_page_number, render_loading_page

__all__ = ["read_run_keys", "routes", "sort_baseline_first"]

_NO_STORE = {"cache-control": "no-store"}
_MAX_RUNS = 8


def read_run_keys(request: Request) -> list[str]:
    """Return the runs in the URL."""
    keys = list(dict.fromkeys(request.query_params.getlist("run")))[:_MAX_RUNS]
    for key in keys:
        request.app.state.catalog.folder(key)
    return keys


def sort_baseline_first(keys: list[str], started: dict[str, float], baseline: str) -> list[str]:
    """Sort runs by start time, so that the oldest is the baseline; a baseline in the URL comes first."""
    return sorted(keys, key=lambda key: (key != baseline, started.get(key.partition("@")[0], 0.0)))


def _show_comparison(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    entries = request.app.state.entries
    every = [entries.get(key, folder) for key, folder in catalog.folders().items()]
    every.sort(key=lambda entry: -(entry.started or 0.0))
    keys = sort_baseline_first(
        read_run_keys(request),
        {entry.key: entry.started or 0.0 for entry in every},
        request.query_params.get("baseline", ""),
    )
    if len(keys) < 2:
        return HTMLResponse(
            render("compare.html", page="compare", keys=keys, entries=every, compared=None), headers=_NO_STORE
        )
    metric = request.query_params.get("metric", "")
    job = _compare(request, keys, metric)
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
    keys = read_run_keys(request)
    given = request.query_params
    task = given.get("task", "")
    numbers = given.getlist("document")
    if not keys or not numbers or not all(number.isdecimal() and len(number) < 19 for number in numbers):
        raise HTTPException(404, "Missing `run` or `document` in the URL.")
    columns: list[dict[str, Any]] = []
    for number, key in enumerate(keys):
        position = int(numbers[min(number, len(numbers) - 1)])
        state = catalog.index(key)
        with catalog.run(key) as run:
            find = state.index.fingerprints.find if state.index else partial(scan_response_rows, run.journal)
            record = read_document(run.journal, task, position, find)
            context = (
                build_document_context(
                    record, run.tasks.get(task, {}), run.folder, directions=read_directions(run, task)
                )
                if record
                else None
            )
            columns.append({"key": key, "model": run.model, "position": position, "context": context})
    if all(column["context"] is None for column in columns):
        raise HTTPException(404, f"None of the runs has document {numbers[0]} of task {task}.")
    first = next(column["context"] for column in columns if column["context"] is not None)
    _mark_answers(columns)
    url = {name: given.get(name, "") for name in ("side", "metric", "baseline")}
    return HTMLResponse(
        render(
            "compare_document.html",
            page="document",
            section="compare",
            key=keys[0],
            keys=keys,
            task=task,
            first=first,
            columns=columns,
            numbers=numbers,
            url=url,
            flips=_find_neighbours(request, keys, task, int(numbers[0])),
        ),
        headers=_NO_STORE,
    )


def _mark_answers(columns: list[dict[str, Any]]) -> None:
    """Add the responses of each run with the words that differ: from the first run, and there from the second."""
    texts = [_read_texts(column["context"]) for column in columns]
    for place, column in enumerate(columns):
        other = texts[0] if place else texts[1] if len(texts) > 1 else texts[0]
        column["answers"] = []
        for number, text in enumerate(texts[place]):
            base = other[number] if number < len(other) else ""
            column["answers"].append(
                mark_differences(base, text)[1] if place else mark_differences(text, base)[0]
            )


def _find_neighbours(request: Request, keys: list[str], task: str, document: int) -> dict[str, Any]:
    """Return the documents with different scores before and after this one, as soon as the runs are compared."""
    nothing = {"before": None, "after": None, "place": None, "found": 0}
    if len(keys) < 2:
        return nothing
    metric = request.query_params.get("metric", "")
    job = _compare(request, keys, metric)
    if not job.ready or job.error is not None:
        return nothing
    side = request.query_params.get("side", "")
    return find_flip_neighbours(job.result(), task=task, side=side, document=document)


def _compare(request: Request, keys: list[str], metric: str) -> Job:
    """Return the job that compares some runs."""
    catalog: RunCatalog = request.app.state.catalog
    job: Job = request.app.state.jobs.get(
        ("compare", tuple(keys), metric),
        read_signatures(catalog, keys),
        lambda: compare_runs(catalog, keys, metric),
        wait_s=JOB_WAIT_S,
        stale=True,
    )
    return job


def _read_texts(context: dict[str, Any] | None) -> list[str]:
    if context is None:
        return []
    return [
        context["response_text"](record.response) if record.response is not None else ""
        for record in context["responses"]
    ]


routes = [Route("/compare", _show_comparison), Route("/compare/document", _show_document)]
