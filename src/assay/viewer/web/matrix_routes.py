"""Routes of the matrix: several runs by task, and one task over time."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from assay.viewer.web.pages.comparison import read_signatures
from assay.viewer.web.pages.matrix import (
    MAX_RUNS,
    build_history_context,
    build_matrix_context,
    choose_default_runs,
    compute_matrix,
)
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_entries import RunEntry
from assay.viewer.web.run_routes import JOB_WAIT_S, render_loading_page

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}


def _list_entries(request: Request) -> list[RunEntry]:
    catalog: RunCatalog = request.app.state.catalog
    entries = [request.app.state.entries.get(key, folder) for key, folder in catalog.folders().items()]
    return sorted(entries, key=lambda entry: -(entry.started or 0.0))


def _show_matrix(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    entries = _list_entries(request)
    chosen = list(dict.fromkeys(request.query_params.getlist("run")))[:MAX_RUNS]
    keys = chosen or choose_default_runs(entries)
    for key in keys:
        catalog.folder(key)
    context: dict[str, object] = {"columns": (), "rows": [], "notes": ()}
    if keys:
        job = request.app.state.jobs.get(
            ("matrix", tuple(keys), bool(chosen)),
            read_signatures(catalog, keys),
            lambda: compute_matrix(catalog, keys, by_model=not chosen),
            wait_s=JOB_WAIT_S,
            stale=True,
        )
        if not job.ready:
            return render_loading_page("Building the matrix", "Reading the scores of all documents.", "")
        context = build_matrix_context(job.result())
    context |= {"keys": keys, "by_model": not chosen, "entries": entries, "max_runs": MAX_RUNS}
    page = render("matrix.html", page="matrix", **context)
    return HTMLResponse(page, headers=_NO_STORE)


def _show_history(request: Request) -> Response:
    given = request.query_params
    entries = _list_entries(request)
    context = build_history_context(
        request.app.state.catalog,
        entries,
        given.get("task", ""),
        given.get("metric", ""),
        given.get("filter", ""),
    )
    if not context["rows"]:
        raise HTTPException(404, f"No finished run has a score for {given.get('task', '')}.")
    return HTMLResponse(render("history.html", page="matrix", **context), headers=_NO_STORE)


routes = [Route("/matrix", _show_matrix), Route("/matrix/history", _show_history)]
