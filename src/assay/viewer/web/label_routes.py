"""Routes of human labels: read and change the labels of a document, agreement between people, what to label next."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from assay.core.errors import UnknownName
from assay.store.database.tables import MAX_DOCUMENTS_PER_TASK
from assay.store.documents.details import read_document
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.filters.syntax import quote_value
from assay.store.index.document_index import compute_signature
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.labels import (
    append_label,
    compute_labels_signature,
    find_labeller,
    group_labels,
    read_run_labels,
)
from assay.store.runs.run import Run
from assay.viewer.analysis.label_agreement import (
    QueueEntry,
    average_labels,
    build_label_queue,
    compute_label_agreement,
)
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_routes import render_loading_page

__all__ = ["routes"]

_NO_STORE = {"cache-control": "no-store"}
_MAX_QUEUE = 50


def _send_labels(request: Request) -> Response:
    """Return the labels of one document."""
    catalog: RunCatalog = request.app.state.catalog
    task, position = request.path_params["task"], request.path_params["position"]
    known = group_labels(read_run_labels(catalog.folder(request.path_params["key"])))
    return JSONResponse(
        {"labels": [label.as_json() for label in known.get((task, position), [])], "who": find_labeller()},
        headers=_NO_STORE,
    )


async def _change_label(request: Request) -> Response:
    """Change one person's label of a document."""
    catalog: RunCatalog = request.app.state.catalog
    key, task = request.path_params["key"], request.path_params["task"]
    position = request.path_params["position"]
    try:
        content = await request.json()
    except ValueError:
        content = None
    kinds = {"verdict": str, "note": str, "star": bool, "who": str}
    if not isinstance(content, dict) or not all(
        name in kinds and isinstance(value, kinds[name]) for name, value in content.items()
    ):
        raise HTTPException(400, "expected `verdict`, `note`, `star` and `who`")
    with catalog.run(key) as run:
        known = position < MAX_DOCUMENTS_PER_TASK and read_document(run.journal, task, position) is not None
        if not known:
            raise UnknownName(f"the run has no document {position} of task `{task}`")
    append_label(
        catalog.folder(key),
        task,
        position,
        who=content.get("who") or find_labeller(),
        verdict=content.get("verdict"),
        note=content.get("note"),
        star=content.get("star"),
    )
    return _send_labels(request)


def _show_labels(request: Request) -> Response:
    """Show who labelled what, how far people agree, and the documents to label next."""
    catalog: RunCatalog = request.app.state.catalog
    key = request.path_params["key"]
    folder = catalog.folder(key)
    labels = read_run_labels(folder)
    chosen = request.query_params.get("by", "")
    queue: list[QueueEntry] = []
    if chosen:
        against = [catalog.folder(chosen)] if chosen != "judges" else []
        version = [compute_signature(one / JOURNAL_FILE) for one in (folder, *against)]
        version.append(list(compute_labels_signature(folder)))
        job = request.app.state.jobs.get(
            ("queue", key, chosen), version, lambda: _build_queue(folder, against), wait_s=1.0
        )
        if not job.ready:
            return render_loading_page("Comparing scores", "A large run takes a few seconds.", key)
        queue = job.result()
    people: dict[str, dict[str, int]] = {}
    for label in labels:
        counts = people.setdefault(label.who, {"right": 0, "wrong": 0, "notes": 0, "stars": 0})
        counts["notes"] += bool(label.note)
        counts["stars"] += label.star
        if label.verdict:
            counts[label.verdict] += 1
    with catalog.run(key) as run:
        tasks, model = set(run.tasks), run.model
    context = {
        "key": key,
        "model": model,
        "people": people,
        "pairs": compute_label_agreement(labels),
        "labels": labels,
        "mean": average_labels(labels),
        "by": chosen,
        "queue": queue,
        "queue_where": _build_queue_filter(queue),
        "others": _list_other_runs(request, key, tasks),
    }
    return HTMLResponse(render("labels.html", page="labels", **context), headers=_NO_STORE)


def _build_queue(folder: Any, against: list[Any]) -> list[QueueEntry]:
    sources = [RunScoreTables(Run(one)) for one in (folder, *against)]
    labelled = group_labels(label for label in read_run_labels(folder) if label.verdict)
    try:
        return build_label_queue(sources[0], sources[1:], labelled=labelled, limit=_MAX_QUEUE)
    finally:
        for source in sources:
            source.close()


def _build_queue_filter(queue: list[QueueEntry]) -> str:
    """Return the filter expression of the documents in the queue, so that `j` opens the next one."""
    by_task: dict[str, list[int]] = {}
    for entry in queue:
        by_task.setdefault(entry.task, []).append(entry.document)
    return " or ".join(
        f"(task={quote_value(task)} and document in ({', '.join(map(str, documents))}))"
        for task, documents in by_task.items()
    )


def _list_other_runs(request: Request, key: str, tasks: set[str]) -> list[str]:
    """Return the keys of runs that share a task with this one."""
    catalog: RunCatalog = request.app.state.catalog
    found = []
    for other, folder in catalog.folders().items():
        if other != key and tasks & set(request.app.state.entries.get(other, folder).tasks):
            found.append(other)
    return sorted(found)


routes = [
    Route("/runs/{key}/labels", _show_labels),
    Route("/runs/{key}/labels/{task:path}/{position:int}", _send_labels, methods=["GET"]),
    Route("/runs/{key}/labels/{task:path}/{position:int}", _change_label, methods=["POST"]),
]
