"""The web application: its routes and its error pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.core.errors import AssayError, UnknownName
from assay.store.filters.syntax import FilterError
from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.store.runs.tags import write_tags
from assay.viewer.documents import filter_trace
from assay.viewer.web import (
    comparison_routes,
    document_list_routes,
    label_routes,
    matrix_routes,
    plot_routes,
    rendering,
    run_routes,
    watch_routes,
)
from assay.viewer.web.access_control import AccessControl
from assay.viewer.web.background_jobs import BackgroundJobs
from assay.viewer.web.live_updates import stream_events
from assay.viewer.web.pages.runs import build_outcome_bar, build_runs_context
from assay.viewer.web.pages.video_frames import extract_jpeg_frames
from assay.viewer.web.rendering import STATIC_FILES, find_plotly_script, read_static_file, render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_entries import RunEntryCache
from assay.viewer.web.run_routes import read_json

__all__ = ["build_app", "build_pages", "preload"]

_CACHE_FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
_NO_STORE = {"cache-control": "no-store"}


def build_app(catalog: RunCatalog, *, token: str, port: int) -> AccessControl:
    """Build the application behind its access control."""
    return AccessControl(build_pages(catalog), token=token, port=port)


def build_pages(catalog: RunCatalog) -> Starlette:
    """Build the application without access control."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        catalog.close()

    app = Starlette(
        routes=[
            Route("/", _show_runs),
            Route("/counts", _send_counts),
            Route("/events", _send_events),
            Route("/static/{version}/{name:path}", _send_static_file),
            Route("/favicon.ico", _send_icon),
            Route("/plotly/{version}.js", _send_plotly),
            Route("/media/{key}/{digest}", _send_media),
            Route("/media/{key}/{digest}/frames", _list_frames),
            Route("/media/{key}/{digest}/frames/{number:int}", _send_frame),
            Route("/runs/{key}/tags", _save_tags, methods=["POST"]),
            *document_list_routes.routes,
            *label_routes.routes,
            *run_routes.routes,
            *comparison_routes.routes,
            *matrix_routes.routes,
            *plot_routes.routes,
            *watch_routes.routes,
        ],
        lifespan=lifespan,
        exception_handlers={
            AssayError: _handle_assay_error,
            HTTPException: _handle_http_error,
            Exception: _handle_unexpected_error,
        },
    )
    app.state.catalog = catalog
    app.state.entries = RunEntryCache()
    app.state.jobs = BackgroundJobs()
    app.state.typed = {}
    app.state.curve_readers = {}
    return app


def preload() -> None:
    """Load what the first page would otherwise wait for."""
    rendering.preload()
    filter_trace.preload()


def _show_runs(request: Request) -> Response:
    context = build_runs_context(
        request.app.state.catalog, request.app.state.entries, dict(request.query_params)
    )
    return HTMLResponse(render("runs.html", page="runs", **context), headers=_NO_STORE)


def _send_counts(request: Request) -> Response:
    """Return the outcomes and the cost of one run, which the list of runs loads later."""
    catalog: RunCatalog = request.app.state.catalog
    key = request.query_params.get("run", "")
    entry = request.app.state.entries.get(key, catalog.folder(key), count=True)
    bar = build_outcome_bar(entry.counts.outcomes, entry.documents, entry.state) if entry.counts else []
    return HTMLResponse(render("counts.html", entry=entry, bar=bar), headers=_NO_STORE)


def _send_events(request: Request) -> Response:
    stream = stream_events(
        request.app.state.catalog, request.query_params.get("run", ""), request.is_disconnected
    )
    return StreamingResponse(stream, media_type="text/event-stream", headers=_NO_STORE)


async def _save_tags(request: Request) -> Response:
    catalog: RunCatalog = request.app.state.catalog
    folder = catalog.folder(request.path_params["key"])
    content = await read_json(request)
    given = content.get("tags") if isinstance(content, dict) else None
    if not isinstance(given, list):
        raise HTTPException(400, "`tags` must be a list of strings")
    kept = write_tags(folder, [str(tag) for tag in given])
    return JSONResponse({"tags": kept})


def _send_static_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC_FILES:
        raise HTTPException(404)
    return Response(read_static_file(name), media_type=STATIC_FILES[name], headers=_CACHE_FOREVER)


def _send_icon(request: Request) -> Response:
    return Response(read_static_file("icon.svg"), media_type=STATIC_FILES["icon.svg"], headers=_CACHE_FOREVER)


def _send_plotly(request: Request) -> Response:
    """Return plotly's script from the installed package."""
    return FileResponse(find_plotly_script(), media_type="text/javascript", headers=_CACHE_FOREVER)


def _send_media(request: Request) -> Response:
    """Return a media file of a run by its digest; only types that a browser displays without executing them."""
    catalog: RunCatalog = request.app.state.catalog
    path = find_media_file(catalog.folder(request.path_params["key"]), request.path_params["digest"])
    if path is None:
        raise HTTPException(404, "The run has no such media file.")
    with path.open("rb") as file:
        kind = detect_content_type(file.read(32))
    if not kind:
        raise HTTPException(415, "Unsupported media type: browsers do not display it.")
    policy = {"content-security-policy": "default-src 'none'; sandbox", **_CACHE_FOREVER}
    return FileResponse(path, media_type=kind, headers=policy)


def _read_frames(request: Request) -> list[tuple[float, bytes]]:
    """Return the time and the JPEG file of some frames of a video, for browsers that cannot play it."""
    catalog: RunCatalog = request.app.state.catalog
    path = find_media_file(catalog.folder(request.path_params["key"]), request.path_params["digest"])
    if path is None:
        raise HTTPException(404, "The run has no such media file.")
    job = request.app.state.jobs.get(
        ("frames", str(path)), "", lambda: extract_jpeg_frames(path), wait_s=60.0
    )
    found: list[tuple[float, bytes]] = job.result()
    return found


def _list_frames(request: Request) -> Response:
    """Return the times of the frames, or the reason why there are none."""
    try:
        return JSONResponse({"frames": [time_s for time_s, _ in _read_frames(request)]}, headers=_NO_STORE)
    except AssayError as error:
        if isinstance(error, UnknownName):
            raise
        return JSONResponse({"frames": None, "why": error.what}, headers=_NO_STORE)


def _send_frame(request: Request) -> Response:
    frames = _read_frames(request)
    number = request.path_params["number"]
    if number >= len(frames):
        raise HTTPException(404, "The video has no such frame.")
    policy = {"content-security-policy": "default-src 'none'; sandbox", **_CACHE_FOREVER}
    return Response(frames[number][1], media_type="image/jpeg", headers=policy)


# --- errors ------------------------------------------------------------------------------------------


def _render_message(status: int, title: str, text: str, hint: str = "") -> Response:
    return HTMLResponse(
        render("message.html", page="", title=title, text=text, hint=hint),
        status_code=status,
        headers=_NO_STORE,
    )


def _handle_assay_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AssayError)
    is_mistake = request.method == "POST" or isinstance(error, FilterError)
    status = 404 if isinstance(error, UnknownName) else 400 if is_mistake else 500
    if request.method == "POST":
        return JSONResponse({"error": error.what}, status_code=status)
    title = "Not found" if status == 404 else "Cannot show this page"
    where = f" ({error.where})" if error.where else ""
    return _render_message(status, title, f"{error.what}{where}", error.hint)


def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail if error.detail != "Not Found" else "This page does not exist."
    return _render_message(
        error.status_code, "Not found" if error.status_code == 404 else "Request refused", text
    )


def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    return _render_message(
        500, "Internal error", f"{type(error).__name__}: {error}", "See the terminal for details."
    )
