"""Routes of watched training runs: the list, the curve of one, and its state for the script that refreshes the page."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from assay.store.runs.watches import Watch
from assay.viewer.training_curves.curve import CurveReader
from assay.viewer.web.pages.watch import build_watch_context, build_watches_context
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_routes import JOB_WAIT_S, render_loading_page

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}


def _list_watches(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    watches = catalog.watches()
    if len(watches) == 1:
        return RedirectResponse(f"/watch/{watches[0].key}", status_code=303)
    return HTMLResponse(
        render("watches.html", page="watch", **build_watches_context(watches)), headers=_NO_STORE
    )


def _show_watch(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    watch = catalog.watch(request.path_params["key"])
    readers: dict[str, CurveReader] = request.app.state.curve_readers
    reader = readers.setdefault(str(watch.folder), CurveReader(watch))
    signature = _compute_signature(watch)
    job = request.app.state.jobs.get(
        ("watch", str(watch.folder)), signature, reader.read, wait_s=JOB_WAIT_S, stale=True
    )
    if not job.ready:
        return render_loading_page("Reading the curve", "Reading the scores of all checkpoints.", "")
    context = build_watch_context(job.result(), catalog, watch)
    page = render("watch.html", page="watch", key=watch.key, signature=job.version, **context)
    return HTMLResponse(page, headers=_NO_STORE)


def _send_state(request: Request) -> Response:
    """Return the signature of a watch, which changes with every outcome."""
    watch = request.app.state.catalog.watch(request.path_params["key"])
    return JSONResponse({"signature": _compute_signature(watch)}, headers=_NO_STORE)


def _compute_signature(watch: Watch) -> str:
    records = sorted(watch.read_records().items())
    return hashlib.sha256(repr((watch.read_settings(), records)).encode("utf-8", "replace")).hexdigest()[:16]


routes = [
    Route("/watch", _list_watches),
    Route("/watch/{key}", _show_watch),
    Route("/watch/{key}/state", _send_state),
]
