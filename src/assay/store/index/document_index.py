"""The index of one run: built from its journal, stored for later, extended while the run continues."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.home import assay_home
from assay.core.records.endings import RETRIED_ENDINGS
from assay.store.index.columns import MAX_METRICS, OUTCOMES, Columns, read_columns, write_columns
from assay.store.index.row_reader import FingerprintIndex, Row, RowReader
from assay.store.index.text_search import TextIndex
from assay.store.journal.journal import Journal

__all__ = ["DocumentIndex", "compute_signature", "has_stored_index", "index_folder"]

_BATCH_SIZE = 2000
_PUBLISH_INTERVAL_ROWS = 50_000
_FAILED = OUTCOMES.index("failed")
_UNFINISHED = [OUTCOMES.index(outcome) for outcome in ("open", *RETRIED_ENDINGS)]
_SELECT_NEW = """
SELECT a.id, a.fields, a.target, a.unchecked_requests, j.outcome, j.unchecked_verdicts FROM asked a LEFT JOIN judged j ON j.id = a.id
WHERE a.id > ? AND a.id <= ? ORDER BY a.id
"""
_SELECT_NOT_ASKED = """
SELECT j.id, NULL, NULL, NULL, j.outcome, j.verdicts FROM main.judged j LEFT JOIN main.asked a ON a.id = j.id
WHERE j.id BETWEEN ? AND ? AND a.id IS NULL ORDER BY j.id
"""
_SELECT_UPDATED = """
SELECT j.id, a.fields, a.target, a.unchecked_requests, j.outcome, j.unchecked_verdicts FROM judged j LEFT JOIN asked a ON a.id = j.id
WHERE j.id IN ({}) ORDER BY j.id
"""

Progress = Callable[[int], None]


def index_folder(folder: Path) -> Path:
    """Return the folder of the index of a run."""
    name = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return assay_home() / "indexes" / name


def has_stored_index(folder: Path) -> bool:
    """Whether there is a stored index of a run."""
    return (index_folder(folder) / "columns.npz").is_file()


def compute_signature(path: Path) -> list[int]:
    """Return a value that changes with the journal: inode, size and time of the file and its WAL."""
    marks = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = file.stat()
            marks += [status.st_ino, status.st_size, status.st_mtime_ns if status.st_size else 0]
        except OSError:
            marks += [0, 0, 0]
    return marks[:3] + marks[4:]


class DocumentIndex:
    """Columns and texts of the documents of a run. One thread updates it; any thread can read the published state."""

    def __init__(self, journal: Journal, folder: Path, about: Mapping[str, Any]) -> None:
        self.journal = journal
        self.folder = folder
        self.task_facts = about
        """Facts of the tasks of the run."""

        self.columns = Columns()
        self.version = 0
        """Incremented by every update that changes something."""

        self.texts = TextIndex(folder / "texts.bin")
        self.fingerprints = FingerprintIndex()
        self.signature: list[int] = []
        self.lock = threading.RLock()
        self._categories: dict[str, dict[str, int]] = {}
        self.excluded_fields: set[str] = set()
        """Fields of the documents that are not categories."""

    # --- storage -----------------------------------------------------------------------------------

    def load(self) -> bool:
        """Load the stored index if it belongs to this journal file; return whether it does."""
        found = read_columns(self.folder / "columns.npz")
        if found is None:
            return False
        names, numbers = found
        marks = names["signature"]
        if marks[0] != compute_signature(self.journal.path)[0] or names["digest"] != self._digest():
            return False
        if not self._has_text_files(names):
            return False
        with self.lock:
            self.columns = Columns.from_stored(names, numbers)
            self.fingerprints = FingerprintIndex(numbers["sums"], numbers["rows"])
            self.texts.starts, self.texts.owners = [numbers["starts"]], [numbers["owners"]]
            self.texts.word_starts = [numbers["word_starts"]]
            self.texts.size, self.texts.word_count = names["texts"], names["words"]
            self.texts.load_vocabulary(numbers["vocabulary"].tobytes())
            self._categories = {name: one.values for name, one in self.columns.categories.items()}
            self.excluded_fields = set(names["too_many"])
            self.signature = marks
            self.version += 1
        return True

    def _has_text_files(self, names: Mapping[str, Any]) -> bool:
        try:
            sizes = [path.stat().st_size for path in (self.texts.path, self.texts.words_path)]
        except OSError:
            return False
        return bool(sizes[0] >= names["texts"] and sizes[1] >= 4 * names["words"])

    def save(self) -> None:
        """Store the index."""
        with self.lock:
            starts, word_starts, owners = self.texts.read_positions()
            names = {
                **self.columns.to_metadata(),
                "signature": self.signature,
                "digest": self._digest(),
                "texts": self.texts.size,
                "words": self.texts.word_count,
                "too_many": sorted(self.excluded_fields),
            }
            numbers = {
                **self.columns.to_arrays(),
                "sums": self.fingerprints.hashes,
                "rows": self.fingerprints.rows,
                "starts": starts,
                "word_starts": word_starts,
                "owners": owners,
                "vocabulary": np.frombuffer(self.texts.encode_vocabulary(), dtype=np.uint8),
            }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_columns(self.folder / "columns.npz", names, numbers)

    def _digest(self) -> str:
        ((digest,),) = list(self.journal.query("SELECT value FROM facts WHERE key = 'digest'")) or [("",)]
        return str(digest)

    # --- updates -----------------------------------------------------------------------------------

    def update(self, progress: Progress | None = None) -> bool:
        """Index what was added to the journal since the last update; return whether anything changed."""
        marks = compute_signature(self.journal.path)
        if marks == self.signature:
            return False
        before = self.version
        try:
            self._read_journal(progress)
        finally:
            self.texts.close()  # also if `progress` stops the update
        with self.lock:
            self.signature = marks
        return self.version != before

    def _read_journal(self, progress: Progress | None) -> None:
        with self.journal.report_decode_errors():
            if self._has_lost_tasks():
                self.reset()
            known = self.journal.query(
                "SELECT fingerprint, id FROM answered WHERE id >= ? ORDER BY id",
                (self.fingerprints.next_row,),
            )
            while some := list(islice(known, 200_000)):
                self.fingerprints.add(some)
            tasks = list(self.journal.query("SELECT name, first, last FROM tasks ORDER BY first"))
            reader = self._build_reader([name for name, _, _ in tasks])
            for name, first, last in tasks:
                self._update_unfinished(reader, name, first)
                self._add_new(reader, name, first, last, progress)
            self._categories, self.excluded_fields = reader.categories, reader.excluded_fields

    def _has_lost_tasks(self) -> bool:
        """Whether an indexed task is missing in the journal, so that it is another file."""
        ((count,),) = self.journal.query("SELECT count(*) FROM main.tasks")
        return int(count) < len(self.columns.tasks)

    def is_complete(self) -> bool:
        """Whether all documents are indexed; a run can ask documents out of order."""
        ((count,),) = self.journal.query(
            "SELECT (SELECT count(*) FROM main.asked)"
            " + (SELECT count(*) FROM main.judged WHERE id NOT IN (SELECT id FROM main.asked))"
        )
        return int(count) == len(self.columns)

    def reset(self) -> None:
        """Discard everything and start again."""
        with self.lock:
            self.texts.close()
            self.columns, self.fingerprints = Columns(), FingerprintIndex()
            self.texts = TextIndex(self.folder / "texts.bin")
            self._categories, self.excluded_fields = {}, set()
            self.signature = []

    def _build_reader(self, tasks: list[str]) -> RowReader:
        metrics = dict(self.columns.metrics)
        for task in tasks:
            facts = self.task_facts.get(task, {})
            listed = [
                (pipeline, metric)
                for pipeline in facts.get("pipelines", ())
                for metric in facts.get("metrics", ())
            ]
            metrics.setdefault(task, listed[:MAX_METRICS])
        numbers = {name: at for at, name in enumerate(tasks)}
        return RowReader(
            self.journal, self.fingerprints, numbers, metrics, self._categories, self.excluded_fields
        )

    def _update_unfinished(self, reader: RowReader, task: str, first: int) -> None:
        """Update documents that were open or failed and have another outcome now."""
        now = self.columns
        open_rows = np.flatnonzero((now.task == reader.tasks[task]) & np.isin(now.outcome, _UNFINISHED))
        places = dict(zip(now.ids[open_rows].tolist(), open_rows.tolist(), strict=True))
        for ids in _split_into_batches(list(places)):
            chosen = ",".join(map(str, ids))
            changed = [
                number
                for number, outcome in self.journal.query(
                    f"SELECT id, outcome FROM main.judged WHERE id IN ({chosen})"
                )
                if outcome != OUTCOMES[now.outcome[places[number]]]
            ]
            if not changed:
                continue
            rows = list(self.journal.query(_SELECT_UPDATED.format(",".join(map(str, changed)))))
            added, texts = reader.read_columns(task, first, rows)
            at = np.array([places[row[0]] for row in rows], dtype=np.int64)
            with self.lock:
                self.columns = self.columns.replace_rows(at, added)
                self.texts.discard_rows(at)
                self.texts.append(at.tolist(), texts)
                self.version += 1

    def _add_new(
        self, reader: RowReader, task: str, first: int, last: int, progress: Progress | None
    ) -> None:
        """Add documents that are not indexed yet."""
        now = self.columns
        mine = now.task == reader.tasks[task]
        sure = now.ids[mine & (now.outcome != _FAILED)]  # failed documents may have no requests
        newest = int(sure.max()) if len(sure) else first - 1
        known = {number for number in now.ids[mine].tolist() if number > newest}
        known |= set(now.ids[mine & (now.outcome == _FAILED)].tolist())
        waiting: list[Columns] = []
        ready = 0
        for rows in self._read_new_rows(known, newest, first, last):
            added, texts = reader.read_columns(task, first, rows)
            with self.lock:
                start = len(self.columns) + ready
                self.texts.append(list(range(start, start + len(rows))), texts)
            waiting.append(added)
            ready += len(rows)
            if progress is not None:
                progress(len(self.columns) + ready)
            if ready >= _PUBLISH_INTERVAL_ROWS:
                self._publish(waiting, reader)
                waiting, ready = [], 0
        self._publish(waiting, reader)

    def _read_new_rows(self, mine: set[int], newest: int, first: int, last: int) -> Iterator[list[Row]]:
        rows: Iterator[Any] = (
            row for row in self.journal.query(_SELECT_NEW, (newest, last)) if row[0] not in mine
        )
        while some := list(islice(rows, _BATCH_SIZE)):
            yield some
        lost = [row for row in self.journal.query(_SELECT_NOT_ASKED, (first, last)) if row[0] not in mine]
        for start in range(0, len(lost), _BATCH_SIZE):
            yield lost[start : start + _BATCH_SIZE]

    def _publish(self, waiting: list[Columns], reader: RowReader) -> None:
        if not waiting:
            return
        with self.lock:
            grown = self.columns
            whole = waiting[0]
            for more in waiting[1:]:
                whole = whole.concatenate(more)
            grown = grown.concatenate(whole)
            grown.categories = {
                name: one for name, one in grown.categories.items() if name not in reader.excluded_fields
            }
            self.columns = grown
            self.version += 1

    def search(self, words: list[str], rows: int) -> NDArray[np.bool_]:
        """Return which rows contain all words."""
        with self.lock:
            return self.texts.search(words, rows)


def _split_into_batches(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), _BATCH_SIZE):
        yield ids[start : start + _BATCH_SIZE]
