"""Indexes of the runs shown in the viewer: built in the background on first use, extended while a run continues."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from assay.core.errors import AssayError
from assay.store.database.locks import is_locked
from assay.store.index.document_index import DocumentIndex, compute_signature, index_folder
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run

__all__ = ["IndexPool", "IndexState"]

_MIN_UPDATE_INTERVAL_S = 1.0
"""Minimum time between updates of the index of an active run."""


@dataclass(slots=True)
class IndexState:
    """State of the index of a run."""

    index: DocumentIndex | None = None
    """None while it is being built."""

    done: int = 0
    total: int = 0
    why: str = ""
    """Error message of a failed update."""

    run: Run | None = field(default=None, repr=False)
    thread: threading.Thread | None = field(default=None, repr=False)
    checked: float = 0.0
    cost_s: float = 0.0
    """Duration of the last update."""


class IndexPool:
    """One index per run folder."""

    def __init__(self) -> None:
        self._states: dict[Path, IndexState] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def get_state(self, folder: Path, *, wait_s: float = 0.0, fresh: bool = False) -> IndexState:
        """Return the state of the index of a run. Start to build or extend it if necessary, and wait up to `wait_s` seconds.

        `fresh`: also wait for an update of an existing index.
        """
        with self._lock:
            state = self._states.setdefault(folder, IndexState())
            busy = state.thread is not None and state.thread.is_alive()
            if not busy and self._is_update_due(folder, state):
                state.why = ""
                state.thread = threading.Thread(
                    target=self._run_update, args=(folder, state), name="assay-index", daemon=True
                )
                state.thread.start()
                busy = True
            thread = state.thread
        if busy and thread is not None and (state.index is None or fresh):
            thread.join(wait_s)
        return state

    def has_state(self, folder: Path) -> bool:
        """Whether the index of a run was requested before."""
        return folder in self._states

    def _is_update_due(self, folder: Path, state: IndexState) -> bool:
        now = time.monotonic()
        if state.index is None:
            return not state.why or now - state.checked > 5
        if now - state.checked < max(_MIN_UPDATE_INTERVAL_S, 5 * state.cost_s):
            return False
        state.checked = now
        return compute_signature(folder / JOURNAL_FILE) != state.index.signature

    def _run_update(self, folder: Path, state: IndexState) -> None:
        begin = time.monotonic()
        try:
            self._update(folder, state)
        except (AssayError, OSError, MemoryError) as error:
            state.why = error.what if isinstance(error, AssayError) else str(error)
            state.index = None
        state.checked = time.monotonic()
        state.cost_s = state.checked - begin

    def _update(self, folder: Path, state: IndexState) -> None:
        if state.run is None or state.index is None:
            if state.run is not None:
                state.run.close()
            state.run = Run(folder)
            state.total = sum(int(task.get("documents", 0)) for task in state.run.tasks.values())
            index = DocumentIndex(state.run.journal, index_folder(folder), state.run.tasks)
            index.load()
        else:
            index = state.index

        def progress(done: int) -> None:
            state.done = done
            if self._is_closed:
                raise AssayError("the viewer was closed")

        held = is_locked(folder)
        changed = index.update(progress)
        if changed and not held and not index.is_complete():
            index.reset()
            index.update(progress)
        if changed and not held:
            index.save()
        state.index = index

    def close(self) -> None:
        """Stop updates and close all journals."""
        self._is_closed = True
        for state in self._states.values():
            if state.thread is not None:
                state.thread.join(30)
            if state.run is not None:
                state.run.close()
        self._states.clear()
