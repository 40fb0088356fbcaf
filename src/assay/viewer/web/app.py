"""The addresses of the viewer, and what answers at each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.core.errors import AssayError, UnknownName
from assay.store.media_files import content_type, media_path
from assay.store.tags import write_tags
from assay.viewer.web import comparing_routes, filter_steps, rendering, run_routes
from assay.viewer.web.cards import Cards
from assay.viewer.web.guard import Guard
from assay.viewer.web.library import Library
from assay.viewer.web.live import events
from assay.viewer.web.rendering import STATIC, plotly_script, render, static_file
from assay.viewer.web.runs_page import outcome_bar, runs_context
from assay.viewer.web.works import Works

__all__ = ["make_app", "warm_up"]

_FOR_EVER = {"cache-control": "private, max-age=31536000, immutable"}
_NEVER = {"cache-control": "no-store"}


def make_app(library: Library, *, token: str, port: int) -> Guard:
    """The application, with its guard before it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        library.close()

    app = Starlette(
        routes=[
            Route("/", _runs),
            Route("/counts", _counts),
            Route("/events", _events),
            Route("/static/{version}/{name}", _static),
            Route("/favicon.ico", _icon),
            Route("/plotly/{version}.js", _plotly),
            Route("/media/{key}/{digest}", _media),
            Route("/runs/{key}/tags", _tags, methods=["POST"]),
            *run_routes.routes,
            *comparing_routes.routes,
        ],
        lifespan=lifespan,
        exception_handlers={AssayError: _failed, HTTPException: _refused, Exception: _broken},
    )
    app.state.library = library
    app.state.cards = Cards()
    app.state.works = Works()
    return Guard(app, token=token, port=port)


def warm_up() -> None:
    """Make ready what the first pages would wait for."""
    rendering.warm_up()
    filter_steps.warm_up()


def _runs(request: Request) -> Response:
    context = runs_context(request.app.state.library, request.app.state.cards, dict(request.query_params))
    return HTMLResponse(render("runs.html", page="runs", **context), headers=_NEVER)


def _counts(request: Request) -> Response:
    """What the list of runs had no time to count: the bar and the cost of one run."""
    library: Library = request.app.state.library
    key = request.query_params.get("run", "")
    card = request.app.state.cards.card(key, library.folder(key), count=True)
    bar = outcome_bar(card.counts.outcomes, card.documents, card.state) if card.counts else []
    return HTMLResponse(render("counts.html", card=card, bar=bar), headers=_NEVER)


def _events(request: Request) -> Response:
    stream = events(request.app.state.library, request.query_params.get("run", ""), request.is_disconnected)
    return StreamingResponse(stream, media_type="text/event-stream", headers=_NEVER)


async def _tags(request: Request) -> Response:
    library: Library = request.app.state.library
    folder = library.folder(request.path_params["key"])
    content = await request.json()
    given = content.get("tags") if isinstance(content, dict) else None
    if not isinstance(given, list):
        raise HTTPException(400, "tags are a list of words")
    kept = write_tags(folder, [str(tag) for tag in given])
    return JSONResponse({"tags": kept})


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(static_file(name), media_type=STATIC[name], headers=_FOR_EVER)


def _icon(request: Request) -> Response:
    return Response(static_file("icon.svg"), media_type=STATIC["icon.svg"], headers=_FOR_EVER)


def _plotly(request: Request) -> Response:
    """The script that draws charts, as the installed package has it."""
    return FileResponse(plotly_script(), media_type="text/javascript", headers=_FOR_EVER)


def _media(request: Request) -> Response:
    """A medium of a run, by its hash and nothing else; only kinds that a browser shows and does not run."""
    library: Library = request.app.state.library
    path = media_path(library.folder(request.path_params["key"]), request.path_params["digest"])
    if path is None:
        raise HTTPException(404, "The run has no such medium.")
    with path.open("rb") as file:
        kind = content_type(file.read(32))
    if not kind:
        raise HTTPException(415, "Not a picture, a sound or a video that browsers show.")
    policy = {"content-security-policy": "default-src 'none'; sandbox", **_FOR_EVER}
    return FileResponse(path, media_type=kind, headers=policy)


# --- errors ------------------------------------------------------------------------------------------


def _page(status: int, title: str, text: str, hint: str = "") -> Response:
    return HTMLResponse(
        render("message.html", page="", title=title, text=text, hint=hint), status_code=status, headers=_NEVER
    )


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, AssayError)
    status = 404 if isinstance(error, UnknownName) else 400 if request.method == "POST" else 500
    if request.method == "POST":
        return JSONResponse({"error": error.what}, status_code=status)
    title = "Not found" if status == 404 else "That cannot be shown"
    where = f" ({error.where})" if error.where else ""
    return _page(status, title, f"{error.what}{where}", error.hint)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail if error.detail != "Not Found" else "There is no such page."
    return _page(error.status_code, "Not found" if error.status_code == 404 else "Refused", text)


def _broken(request: Request, error: Exception) -> Response:
    return _page(500, "Something broke", f"{type(error).__name__}: {error}", "The terminal has the details.")
