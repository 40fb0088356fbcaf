"""Selects documents of a run outside the viewer: for `assay show --where` and `run.documents(where=...)`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from assay.store.database.locks import file_lock, is_locked
from assay.store.filters.evaluation import match_documents
from assay.store.index.document_index import DocumentIndex, compute_signature, index_folder
from assay.store.runs.run import Run

__all__ = ["select_matching_documents"]


def select_matching_documents(run: Run, where: str, tasks: Sequence[str] = ()) -> dict[str, list[int]]:
    """Return the numbers of the documents that match a filter expression, by task, in the order of the run.

    The first expression for a run builds an index of its documents, which is stored for the next one.

    Raises:
        FilterError: The expression is invalid for this run.
    """
    with _open_index(run) as index:
        columns = index.columns
        rows = np.flatnonzero(match_documents(index, columns, where))
    rows = rows[np.argsort(columns.ids[rows], kind="stable")]
    found: dict[str, list[int]] = {task: [] for task in tasks or run.tasks}
    for task, position in zip(columns.task[rows].tolist(), columns.position[rows].tolist(), strict=True):
        if columns.tasks[task] in found:
            found[columns.tasks[task]].append(position)
    return found


@contextmanager
def _open_index(run: Run) -> Iterator[DocumentIndex]:
    """Open the index of the viewer if it is up to date, else one that only these commands use.

    A viewer has the files of its index open while it shows the run, so no other process may write them.
    """
    folder = index_folder(run.folder)
    index = DocumentIndex(run.journal, folder, run.tasks)
    if index.load() and index.signature == compute_signature(run.journal.path):
        yield index
        return
    with ExitStack() as opened:
        own = folder / "commands"
        try:
            own.mkdir(parents=True, exist_ok=True)
            opened.enter_context(file_lock(own / "lock"))
        except OSError:  # a read-only home folder
            own = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="assay-index-")))
        index = DocumentIndex(run.journal, own, run.tasks)
        index.load()
        if index.update() and not is_locked(run.folder):
            if not index.is_complete():
                index.reset()
                index.update()
            index.save()
        yield index
