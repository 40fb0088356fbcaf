"""Addresses below one run: the run, its documents, one of them."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from assay.core.errors import UnknownName
from assay.store.index.documents import signature
from assay.store.journal import FILE_NAME
from assay.store.one_document import read_document
from assay.store.tags import read_tags
from assay.viewer.web.document_page import document_context
from assay.viewer.web.documents_page import (
    Selection,
    documents_context,
    read_query,
    unindexed_context,
    url_query,
)
from assay.viewer.web.library import Library
from assay.viewer.web.rendering import render
from assay.viewer.web.run_page import category_context, run_context

__all__ = ["routes"]

_NEVER = {"cache-control": "no-store"}
_PATIENCE_S = 0.15
"""How long a page waits for the index before it says that it is being made."""


def given_of(request: Request) -> dict[str, list[str]]:
    """The query of an address with every value."""
    return {name: request.query_params.getlist(name) for name in request.query_params}


def page_number(request: Request) -> int:
    """The page that is asked for: the first, where nobody can tell."""
    text = request.query_params.get("page", "1")
    return int(text) if text.isdecimal() and 0 < int(text) < 10**9 else 1


def _run(request: Request) -> Response:
    library: Library = request.app.state.library
    key = request.path_params["key"]
    folder = library.folder(key)
    base = key.partition("@")[0]
    state = request.app.state.cards.card(base, library.folder(base)).state
    tags = read_tags(library.folder(base))

    def make() -> dict[str, Any]:
        with library.run(key) as run:
            return run_context(run, key, state, tags)

    marks = [signature(folder / FILE_NAME), state, tags]
    work = request.app.state.works.get(("run", key), marks, make, wait_s=1.0, stale=True)
    if not work.ready:
        return loading("Reading the run", "The first look at a large run takes a few seconds.", key)
    library.index(key)  # so that it is ready when somebody goes on to the documents
    return HTMLResponse(render("run.html", page="run", **work.result()), headers=_NEVER)


def _categories(request: Request) -> Response:
    """The breakdown of a task by a field of its documents: a piece of the page of a run."""
    library: Library = request.app.state.library
    key = request.path_params["key"]
    state = library.index(key, wait_s=_PATIENCE_S)
    if state.index is None:
        return JSONResponse({"done": state.done, "total": state.total, "why": state.why}, status_code=202)
    given = request.query_params
    metric = given.get("metric", "0")
    context = category_context(
        state.index.columns,
        given.get("task", ""),
        given.get("field", ""),
        int(metric) if metric.isdecimal() else 0,
    )
    return HTMLResponse(render("categories.html", key=key, **context), headers=_NEVER)


def _index(request: Request) -> Response:
    """How far the index is: what a page that waits for it asks."""
    state = request.app.state.library.index(request.path_params["key"])
    return JSONResponse(
        {
            "ready": state.index is not None,
            "done": state.done,
            "total": state.total,
            "why": state.why,
        },
        headers=_NEVER,
    )


def selection_of(request: Request, key: str, index: Any, query: Any) -> Selection:
    """What a query finds; remembered while the index stays as it is, for whoever goes from page to page."""
    work = request.app.state.works.get(
        ("selection", key, query), index.version, lambda: Selection(index, query), wait_s=60.0
    )
    found = work.result()
    assert isinstance(found, Selection)
    return found


def _documents(request: Request) -> Response:
    library: Library = request.app.state.library
    key = request.path_params["key"]
    query = read_query(given_of(request))
    state = library.index(key, wait_s=_PATIENCE_S)
    if state.why:
        raise HTTPException(500, state.why)
    usual = not any(value for value in url_query(query).values())
    if state.index is None and not usual:
        return loading("Reading the documents", "Filters work as soon as all of them were read.", key)
    with library.run(key) as run:
        if state.index is None:
            context = unindexed_context(run, page_number(request))
        else:
            selection = selection_of(request, key, state.index, query)
            context = documents_context(run, state.index, query, selection, page_number(request))
        model = run.model
    return HTMLResponse(
        render("documents.html", page="documents", key=key, model=model, **context), headers=_NEVER
    )


def _document(request: Request) -> Response:
    library: Library = request.app.state.library
    key, task = request.path_params["key"], request.path_params["task"]
    position = request.path_params["position"]
    query = read_query(given_of(request))
    state = library.index(key, wait_s=0.0)
    with library.run(key) as run:
        record = read_document(
            run.journal, task, position, state.index.fingerprints.find if state.index else None
        )
        if record is None:
            raise UnknownName(f"the run has no document {position} of the task `{task}`")
        wanted = bool(run.facts.get("spec", {}).get("token_logprobs"))
        context = document_context(record, run.tasks.get(task, {}), run.folder, tokens=wanted)
        model = run.model
    around: dict[str, Any] = {
        "place": None,
        "found": None,
        "before": None,
        "after": None,
        "page_number": None,
    }
    if state.index is not None:
        around = _around(request, key, state.index, query, task, position)
    return HTMLResponse(
        render(
            "document.html",
            page="document",
            key=key,
            model=model,
            url=url_query(query),
            **around,
            **context,
        ),
        headers=_NEVER,
    )


def _around(request: Request, key: str, index: Any, query: Any, task: str, position: int) -> dict[str, Any]:
    """The documents before and after, among those the address asks for."""
    selection = selection_of(request, key, index, query)
    place = selection.place(task, position)
    if place is None:
        return {
            "place": None, "found": len(selection.rows), "before": None, "after": None, "page_number": None,
        }  # fmt: skip
    return {
        "place": place + 1,
        "found": len(selection.rows),
        "before": selection.document(place - 1),
        "after": selection.document(place + 1),
        "page_number": place // 50 + 1,
    }


def loading(title: str, text: str, key: str) -> Response:
    """A page that looks again by itself."""
    return HTMLResponse(
        render("loading.html", page="", title=title, text=text, key=key), headers=_NEVER, status_code=202
    )


routes = [
    Route("/runs/{key}", _run),
    Route("/runs/{key}/categories", _categories),
    Route("/runs/{key}/index", _index),
    Route("/runs/{key}/documents", _documents),
    Route("/runs/{key}/documents/{task:path}/{position:int}", _document),
]
