"""Live updates of running runs: read from the lock and the journal, sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from assay.core.errors import AssayError
from assay.store.database.locks import is_locked
from assay.store.index.document_index import compute_signature
from assay.store.journal.journal import JOURNAL_FILE
from assay.viewer.web.pages.runs import build_outcome_bar
from assay.viewer.web.run_catalog import RunCatalog

__all__ = ["stream_events", "take_snapshot"]

_INTERVAL_S = 1.0
_IDLE_RATIO = 20
"""The pause after reading is this many times as long as the reading took, so that large runs are read rarely."""

_MAX_INTERVAL_S = 5.0
"""The longest pause: on a loaded machine, one slow reading must not stop the updates for long."""


def take_snapshot(catalog: RunCatalog, key: str) -> dict[str, Any]:
    """Return the progress of a run: documents done, outcomes, responses, elapsed time."""
    folder = catalog.folder(key)
    held = is_locked(folder)
    with catalog.run(key) as run:
        facts = run.facts
        documents = sum(int(task.get("documents") or 0) for task in run.tasks.values())
        outcomes = run.journal.count_all_outcomes()
        responses = run.journal.count_response_rows()
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
        "bar": build_outcome_bar(outcomes, documents, state),
        "elapsed_s": elapsed if held else facts.get("seconds"),
    }


async def stream_events(
    catalog: RunCatalog, only: str, is_disconnected: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Yield an event `run` when a run progresses, and `runs` when one starts or ends; `only`: the key of one run."""
    sent: dict[str, Any] = {}
    signatures: dict[str, list[int]] = {}
    running: set[str] | None = None
    while not await is_disconnected():
        begin = time.monotonic()
        now = await asyncio.to_thread(_find_running, catalog)
        names = [only] if only else sorted(now | (running or set()))
        for key in names:
            state = await asyncio.to_thread(_read_change, catalog, key, signatures)
            if state and state != sent.get(key):
                sent[key] = state
                yield f"event: run\ndata: {json.dumps(state)}\n\n"
        if running is not None and now != running and not only:
            yield f"event: runs\ndata: {json.dumps(sorted(now ^ running))}\n\n"
        running = now
        took = time.monotonic() - begin
        yield ": keep-alive\n\n"
        await asyncio.sleep(min(max(_INTERVAL_S, _IDLE_RATIO * took), _MAX_INTERVAL_S))


def _find_running(catalog: RunCatalog) -> set[str]:
    return {key for key, folder in catalog.folders().items() if is_locked(folder)}


def _read_change(catalog: RunCatalog, key: str, signatures: dict[str, list[int]]) -> dict[str, Any] | None:
    """Return the state of a run; empty if its files are unchanged, None if it was removed."""
    try:
        folder = catalog.folder(key)
        found = [*compute_signature(folder / JOURNAL_FILE), int(is_locked(folder))]
        if signatures.get(key) == found:
            return {}
        state = take_snapshot(catalog, key)
    except AssayError:
        return None
    signatures[key] = found
    return state
