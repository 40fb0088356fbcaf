"""Routes of one run: its page, its documents, one document."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from assay.core.errors import UnknownName
from assay.store.documents.details import read_document, scan_response_rows
from assay.store.filters.evaluation import EvaluationCancelled
from assay.store.filters.syntax import FilterError
from assay.store.index.document_index import compute_signature
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.labels import Label, compute_labels_signature, group_labels, read_run_labels
from assay.store.runs.run import Run
from assay.store.runs.tags import read_tags
from assay.viewer.web.pages.document import build_document_context
from assay.viewer.web.pages.documents import (
    Selection,
    build_documents_context,
    build_invalid_context,
    build_unindexed_context,
    format_query,
    parse_query,
)
from assay.viewer.web.pages.reading_list import build_reading_list, build_unindexed_list
from assay.viewer.web.pages.run import build_category_context, build_run_context
from assay.viewer.web.pages.variants import build_variant_cards
from assay.viewer.web.rendering import SITE, render
from assay.viewer.web.run_catalog import RunCatalog

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}
_SELECTION_WAIT_S = 60.0
_PAGE_WAIT_S = 4.0
"""How long the table of documents waits for a filter before it shows a progress message."""

JOB_WAIT_S = 0.7
"""How long a page waits for its background job before it shows a progress message: the first paint takes at most a second."""

_INDEX_WAIT_S = 0.15
"""How long a page waits for the index before it shows a progress message."""


def read_query_values(request: Request) -> dict[str, list[str]]:
    """Return all values of each query parameter."""
    return {name: request.query_params.getlist(name) for name in request.query_params}


async def read_json(request: Request) -> Any:
    """Return the content of a request.

    Raises:
        HTTPException: It is not JSON.
    """
    try:
        return await request.json()
    except ValueError:
        raise HTTPException(400, "the request must contain JSON") from None


def read_page_number(request: Request) -> int:
    """Return the requested page number; 1 if it is missing or invalid."""
    text = request.query_params.get("page", "1")
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) else 1


def _show_run(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    key = request.path_params["key"]
    folder = catalog.folder(key)
    base = key.partition("@")[0]
    state = request.app.state.entries.get(base, catalog.folder(base)).state
    tags = read_tags(catalog.folder(base))

    def build_context() -> dict[str, Any]:
        with catalog.run(key) as run:
            return build_run_context(run, key, state, tags)

    version = [compute_signature(folder / JOURNAL_FILE), state, tags]
    job = request.app.state.jobs.get(("run", key), version, build_context, wait_s=JOB_WAIT_S, stale=True)
    if not job.ready:
        return render_loading_page("Loading run", "The first time, a large run takes a few seconds.", key)
    catalog.index(key)  # build it before the user opens the documents
    has_labels = bool(read_run_labels(catalog.folder(base)))
    page = render("run.html", page="run", has_labels=has_labels, **job.result())
    return HTMLResponse(page, headers=_NO_STORE)


def _show_categories(request: Request) -> Response:
    """Return the section of a run's page with the scores of a task by category."""
    catalog: RunCatalog = request.app.state.catalog
    key = request.path_params["key"]
    state = catalog.index(key, wait_s=_INDEX_WAIT_S)
    if state.index is None:
        return JSONResponse({"done": state.done, "total": state.total, "why": state.why}, status_code=202)
    given = request.query_params
    metric = given.get("metric", "0")
    context = build_category_context(
        state.index.columns,
        given.get("task", ""),
        given.get("field", ""),
        int(metric) if metric.isdecimal() and len(metric) < 3 else 0,
    )
    return HTMLResponse(render("categories.html", key=key, **context), headers=_NO_STORE)


def _send_index_progress(request: Request) -> Response:
    """Return the progress of the index, which waiting pages poll."""
    state = request.app.state.catalog.index(request.path_params["key"])
    return JSONResponse(
        {
            "ready": state.index is not None,
            "done": state.done,
            "total": state.total,
            "why": state.why,
        },
        headers=_NO_STORE,
    )


class SelectionPending(Exception):
    """The documents of a query are still being selected."""


def select_documents(
    request: Request, key: str, index: Any, query: Any, *, wait_s: float = _SELECTION_WAIT_S
) -> Selection:
    """Return the documents a query selects; cached until the index changes, for paging.

    While somebody types a filter, each request replaces the one before: its selection is cancelled.

    Raises:
        FilterError: The filter expression is invalid.
        SelectionPending: The selection takes longer than `wait_s`.
    """
    query = replace(query, columns=())
    name = ("selection", key, query)
    version = (index.version, compute_labels_signature(request.app.state.catalog.folder(key)))
    cancelled = threading.Event()

    def select() -> Selection:
        return Selection(index, query, cancelled.is_set)

    if request.headers.get("sec-fetch-dest") == "empty":  # a script of the page, not a navigation
        replaced: tuple[Any, threading.Event] | None = request.app.state.typed.get(key)
        if replaced is None or replaced[0] != name:
            if replaced is not None:
                replaced[1].set()
            request.app.state.typed[key] = (name, cancelled)
    job = request.app.state.jobs.get(name, version, select, wait_s=wait_s)
    if not job.ready:
        raise SelectionPending
    if isinstance(job.error, EvaluationCancelled):
        request.app.state.jobs.discard(name, job)
    found = job.result()
    assert isinstance(found, Selection)
    return found


def _show_documents(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    key = request.path_params["key"]
    query = parse_query(read_query_values(request))
    state = catalog.index(key, wait_s=_INDEX_WAIT_S)
    if state.why:
        raise HTTPException(500, state.why)
    usual = not any(value for value in format_query(query).values())
    if state.index is None and not usual:
        return render_loading_page(
            "Reading the documents", "Filters become available when all documents have been read.", key
        )
    status = 200
    with catalog.run(key) as run:
        if state.index is None:
            context = build_unindexed_context(run, read_page_number(request))
        else:
            try:
                selection = select_documents(request, key, state.index, query, wait_s=_PAGE_WAIT_S)
            except SelectionPending:
                return render_loading_page(
                    "Filtering the documents",
                    "This filter reads texts of the whole run. The next time it is faster.",
                    key,
                )
            except FilterError as error:
                context, status = build_invalid_context(state.index, query, error), 400
            else:
                context = build_documents_context(
                    run, state.index, query, selection, read_page_number(request)
                )
        model = run.model
        context["aggregates_only"] = bool(run.tasks_without_documents)
    return HTMLResponse(
        render("documents.html", page="documents", key=key, model=model, **context),
        headers=_NO_STORE,
        status_code=status,
    )


def _show_document(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    key, task = request.path_params["key"], request.path_params["task"]
    position = request.path_params["position"]
    query = parse_query(read_query_values(request))
    url = format_query(query)
    index = catalog.find_index(key)
    with catalog.run(key) as run:
        find = index.fingerprints.find if index else partial(scan_response_rows, run.journal)
        record = read_document(run.journal, task, position, find)
        if record is None:
            raise UnknownName(f"the run has no document {position} of task `{task}`")
        context = build_document_context(
            record,
            run.tasks.get(task, {}),
            run.folder,
            tokens=bool(run.facts.get("spec", {}).get("token_logprobs")),
            directions=read_directions(run, task),
        )
        context["variants"] = build_variant_cards(run, task, position, find, read_directions(run, task))
        if index is None:
            around = build_unindexed_list(run, record, key, url, filtered=any(url.values()))
        else:
            try:
                selection = select_documents(request, key, index, query)
            except (FilterError, SelectionPending):  # the table shows the error; the document can be read
                query = replace(query, where="")
                url = format_query(query)
                selection = select_documents(request, key, index, query)
            around = build_reading_list(
                run, selection, key, url, task=task, position=position, metric=query.metric
            )
        model = run.model
    labels = _read_site_labels(request, key, task, position) if SITE.get() is not None else []
    catalog.index(key)  # build it when the document has been read, which it would delay
    return HTMLResponse(
        render(
            "document.html",
            page="document",
            key=key,
            model=model,
            url=url,
            labels=labels,
            **around,
            **context,
        ),
        headers=_NO_STORE,
    )


def _read_site_labels(request: Request, key: str, task: str, position: int) -> list[Label]:
    """Return the labels of a document, which a page of the server requests by itself."""
    folder = request.app.state.catalog.folder(key)
    job = request.app.state.jobs.get(
        ("labels", key),
        compute_labels_signature(folder),
        lambda: group_labels(read_run_labels(folder)),
        wait_s=60.0,
    )
    found: list[Label] = job.result().get((task, position), [])
    return found


def read_directions(run: Run, task: str) -> dict[tuple[str, str], bool | None]:
    """Return (pipeline, metric) -> whether higher values are better, for a task; empty before the run ends."""
    return {(one.pipeline, one.metric): one.higher_is_better for one in run.estimates if one.task == task}


def render_loading_page(title: str, text: str, key: str) -> Response:
    """Return a page that reloads itself."""
    return HTMLResponse(
        render("loading.html", page="", title=title, text=text, key=key), headers=_NO_STORE, status_code=202
    )


routes = [
    Route("/runs/{key}", _show_run),
    Route("/runs/{key}/categories", _show_categories),
    Route("/runs/{key}/index", _send_index_progress),
    Route("/runs/{key}/documents", _show_documents),
    Route("/runs/{key}/documents/{task:path}/{position:int}", _show_document),
]
