"""Runs that are being written, as they go: read from the lock and the journal, sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from assay.core.errors import AssayError
from assay.store.index.documents import signature
from assay.store.journal import FILE_NAME
from assay.store.lock import is_held
from assay.viewer.web.library import Library
from assay.viewer.web.runs_page import outcome_bar

__all__ = ["events", "snapshot"]

_EVERY_S = 1.0
_COST = 20
"""Looking takes at most one part in so many of the time."""


def snapshot(library: Library, key: str) -> dict[str, Any]:
    """How far a run is: what ended how, how fast it goes, what is left."""
    folder = library.folder(key)
    held = is_held(folder)
    with library.run(key) as run:
        facts = run.facts
        documents = sum(int(task.get("documents") or 0) for task in run.tasks.values())
        outcomes = dict(run.journal.query("SELECT outcome, count(*) FROM judged GROUP BY outcome"))
        ((responses,),) = run.journal.query("SELECT coalesce(max(id) + 1, 0) FROM answered")
        finished = run.finished
    done = sum(outcomes.values())
    state = "running" if held else "finished" if finished else "unfinished"
    started = facts.get("started")
    elapsed = time.time() - started if isinstance(started, (int, float)) else None
    return {
        "key": key,
        "state": state,
        "documents": documents,
        "done": done,
        "responses": responses,
        "outcomes": outcomes,
        "bar": outcome_bar(outcomes, documents, state),
        "elapsed_s": elapsed if held else facts.get("seconds"),
    }


async def events(library: Library, only: str, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
    """One event whenever a run went on; `runs` when one began or ended. `only` one run, or all that are being written."""
    sent: dict[str, Any] = {}
    marks: dict[str, list[int]] = {}
    running: set[str] | None = None
    while not await gone():
        begin = time.monotonic()
        now = await asyncio.to_thread(_running, library)
        names = [only] if only else sorted(now | (running or set()))
        for key in names:
            state = await asyncio.to_thread(_changed, library, key, marks)
            if state and state != sent.get(key):
                sent[key] = state
                yield f"event: run\ndata: {json.dumps(state)}\n\n"
        if running is not None and now != running and not only:
            yield f"event: runs\ndata: {json.dumps(sorted(now ^ running))}\n\n"
        running = now
        took = time.monotonic() - begin
        yield ": still here\n\n"
        await asyncio.sleep(max(_EVERY_S, _COST * took))


def _running(library: Library) -> set[str]:
    return {key for key, folder in library.folders().items() if is_held(folder)}


def _changed(library: Library, key: str, marks: dict[str, list[int]]) -> dict[str, Any] | None:
    """The state of a run; empty where its files are as they were; None where it is gone."""
    try:
        folder = library.folder(key)
        found = [*signature(folder / FILE_NAME), int(is_held(folder))]
        if marks.get(key) == found:
            return {}
        state = snapshot(library, key)
    except AssayError:
        return None
    marks[key] = found
    return state
