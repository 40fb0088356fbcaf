"""Addresses of comparisons: runs side by side, and one document across them."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from assay.store.one_document import read_document
from assay.viewer.web.comparison_page import (
    compare_runs,
    comparison_context,
    flips_context,
    marked_difference,
    marks_of,
)
from assay.viewer.web.document_page import document_context
from assay.viewer.web.library import Library
from assay.viewer.web.rendering import render
from assay.viewer.web.run_routes import loading, page_number

__all__ = ["routes"]

_NEVER = {"cache-control": "no-store"}
_MOST = 8


def _keys(request: Request) -> list[str]:
    keys = list(dict.fromkeys(request.query_params.getlist("run")))[:_MOST]
    for key in keys:
        request.app.state.library.folder(key)
    return keys


def _compare(request: Request) -> Response:
    library: Library = request.app.state.library
    cards = request.app.state.cards
    keys = _keys(request)
    every = [cards.card(key, folder) for key, folder in library.folders().items()]
    every.sort(key=lambda card: -(card.started or 0.0))
    if len(keys) < 2:
        return HTMLResponse(
            render("compare.html", page="compare", keys=keys, cards=every, compared=None), headers=_NEVER
        )
    metric = request.query_params.get("metric", "")
    work = request.app.state.works.get(
        ("compare", tuple(keys), metric),
        marks_of(library, keys),
        lambda: compare_runs(library, keys, metric),
        wait_s=1.5,
        stale=True,
    )
    if not work.ready:
        return loading("Comparing", "Every document of the runs is read once.", "")
    compared = work.result()
    given = request.query_params
    flips = flips_context(
        library,
        compared,
        against=given.get("against", ""),
        task=given.get("task", ""),
        side=given.get("side", ""),
        page=page_number(request),
    )
    url = {
        "run": keys,
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
            cards=every,
            models={card.key: card.model for card in every},
            compared=compared,
            metric=metric,
            url=url,
            flips=flips,
            **comparison_context(compared),
        ),
        headers=_NEVER,
    )


def _document(request: Request) -> Response:
    """One document as each of the runs answered it."""
    library: Library = request.app.state.library
    keys = _keys(request)
    given = request.query_params
    task = given.get("task", "")
    numbers = given.getlist("document")
    if not keys or not numbers or not all(number.isdecimal() for number in numbers):
        raise HTTPException(404, "Which document of which runs?")
    columns: list[dict[str, Any]] = []
    for at, key in enumerate(keys):
        position = int(numbers[min(at, len(numbers) - 1)])
        state = library.index(key)
        with library.run(key) as run:
            find = state.index.fingerprints.find if state.index else None
            record = read_document(run.journal, task, position, find)
            context = document_context(record, run.tasks.get(task, {}), run.folder) if record else None
            columns.append({"key": key, "model": run.model, "position": position, "context": context})
    if all(column["context"] is None for column in columns):
        raise HTTPException(404, f"None of the runs has document {numbers[0]} of the task {task}.")
    first = next(column["context"] for column in columns if column["context"] is not None)
    texts = [_texts(column["context"]) for column in columns]
    for column, said in zip(columns, texts, strict=True):
        column["answers"] = [
            marked_difference(texts[0][at] if at < len(texts[0]) else "", text)
            for at, text in enumerate(said)
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
        headers=_NEVER,
    )


def _texts(context: dict[str, Any] | None) -> list[str]:
    if context is None:
        return []
    return [
        context["said"](asked.response) if asked.response is not None else ""
        for asked in context["responses"]
    ]


routes = [Route("/compare", _compare), Route("/compare/document", _document)]
