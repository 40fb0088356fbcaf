"""Routes of the table of documents: completion of filters, downloads, saved views and thumbnails."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.core.records.codec import to_plain
from assay.store.filters.completion import complete_expression
from assay.store.filters.evaluation import build_name_catalog, check_expression
from assay.store.filters.syntax import MAX_EXPRESSION_LENGTH, FilterError
from assay.store.runs.labels import group_labels, read_run_labels
from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.store.runs.run import Run
from assay.store.runs.saved_views import remove_view, save_view
from assay.viewer.exports.rows import dump_json
from assay.viewer.web.pages.documents import Selection, parse_query
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_routes import SelectionPending, read_json, read_query_values, select_documents

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}
_CACHE_FOREVER = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
}
_THUMBNAIL_PIXELS = 96
_BATCH_SIZE = 200


def _complete_filter(request: Request) -> Response:
    """Return suggestions for a filter expression that is being typed, and its error if it is complete and wrong."""
    catalog: RunCatalog = request.app.state.catalog
    state = catalog.index(request.path_params["key"], wait_s=0.15)
    if state.index is None:
        return JSONResponse({"ready": False}, headers=_NO_STORE)
    text = request.query_params.get("where", "")[: MAX_EXPRESSION_LENGTH + 1]
    given = request.query_params.get("cursor", "")
    cursor = int(given) if given.isdecimal() and len(given) < 8 else len(text)
    found = complete_expression(text, cursor, build_name_catalog(state.index))
    error: FilterError | None = None
    try:
        check_expression(state.index, text)
    except FilterError as problem:
        error = problem
    return JSONResponse(
        {
            "ready": True,
            "start": found.start,
            "end": found.end,
            "suggestions": [{"text": one.text, "description": one.description} for one in found.suggestions],
            "error": None
            if error is None
            else {
                "what": error.what,
                "hint": error.hint,
                "position": error.position,
                "length": error.length,
            },
        },
        headers=_NO_STORE,
    )


def _download_documents(request: Request) -> Response:
    """Send the selected documents as JSON lines, with their labels."""
    catalog: RunCatalog = request.app.state.catalog
    key = request.path_params["key"]
    state = catalog.index(key, wait_s=60.0)
    if state.index is None:
        raise HTTPException(503, state.why or "The documents are being indexed. Try again in a moment.")
    try:
        selection = select_documents(request, key, state.index, parse_query(read_query_values(request)))
    except SelectionPending:
        raise HTTPException(503, "The documents are being filtered. Try again in a moment.") from None
    run = Run(catalog.folder(key))
    name = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in key)
    return StreamingResponse(
        _iterate_lines(run, selection),
        media_type="application/jsonl",
        headers={**_NO_STORE, "content-disposition": f'attachment; filename="{name}-documents.jsonl"'},
    )


def _iterate_lines(run: Run, selection: Selection) -> Iterator[bytes]:
    labels = group_labels(read_run_labels(run.folder))
    try:
        for start in range(0, len(selection.rows), _BATCH_SIZE):
            places = [
                found
                for place in range(start, min(start + _BATCH_SIZE, len(selection.rows)))
                if (found := selection.document(place)) is not None
            ]
            for task, listed in groupby(places, key=lambda place: place[0]):
                wanted = [position for _, position in listed]
                records: dict[int, dict[str, Any]] = {
                    record["document"]: record for record in run.records(task, wanted)
                }
                for position in wanted:
                    if position in records:
                        record = records[position]
                        if known := labels.get((task, position)):
                            record["labels"] = [label.as_json() for label in known]
                        yield dump_json(to_plain(record)).encode("utf-8", "backslashreplace") + b"\n"
    finally:
        run.close()


async def _save_view(request: Request) -> Response:
    content = await read_json(request)
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise HTTPException(400, "`name` must be a string")
    query = content.get("query")
    views = remove_view(content["name"]) if query is None else save_view(content["name"], str(query))
    return JSONResponse({"views": views})


def _send_thumbnail(request: Request) -> Response:
    """Return a small version of an image of a run."""
    catalog: RunCatalog = request.app.state.catalog
    path = find_media_file(catalog.folder(request.path_params["key"]), request.path_params["digest"])
    if path is None:
        raise HTTPException(404, "The run has no such media file.")
    with path.open("rb") as file:
        kind = detect_content_type(file.read(32))
    if not kind.startswith("image/"):
        raise HTTPException(415, "Not an image.")
    try:
        from PIL import Image as Pictures

        with Pictures.open(path) as picture:
            picture.thumbnail((2 * _THUMBNAIL_PIXELS, 2 * _THUMBNAIL_PIXELS))
            smaller = io.BytesIO()
            picture.convert("RGBA").save(smaller, "PNG")
        return Response(smaller.getvalue(), media_type="image/png", headers=_CACHE_FOREVER)
    except ModuleNotFoundError:
        return FileResponse(path, media_type=kind, headers=_CACHE_FOREVER)
    except (OSError, ValueError, SyntaxError) as error:
        raise HTTPException(415, f"The image cannot be decoded: {error}") from None


routes = [
    Route("/runs/{key}/filter", _complete_filter),
    Route("/runs/{key}/documents.jsonl", _download_documents),
    Route("/views", _save_view, methods=["POST"]),
    Route("/media/{key}/{digest}/thumbnail", _send_thumbnail),
]
