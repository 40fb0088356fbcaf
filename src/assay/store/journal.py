"""The journal of one run: everything asked, answered and judged, in one SQLite file.

Appended to by one process (`RunLock`), in group commits; read by anybody at any time. Resume is subtraction:
what the journal holds is not asked again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from assay.core.documents import Document
from assay.core.errors import DamagedStore
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Response
from assay.core.verdicts import Answer, Estimate, Verdict
from assay.store import rows
from assay.store.lock import RunLock
from assay.store.schema import JOURNAL_SCHEMA, connect
from assay.store.writer import GroupWriter

__all__ = ["FILE_NAME", "Journal"]

FILE_NAME = "journal.sqlite"
_CHUNK = 500


class Journal:
    """Reads and appends. Open with `Journal.create` to write, `Journal.read` to look."""

    def __init__(
        self, path: Path, reader: sqlite3.Connection, writer: GroupWriter | None, lock: RunLock | None
    ) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._lock = lock
        self._settings_kept: set[str] = set()

    @classmethod
    def create(cls, folder: Path) -> Journal:
        """Open the journal in `folder` for writing, making both when missing."""
        lock = RunLock(folder)
        lock.acquire()
        path = folder / FILE_NAME
        with ExitStack() as undo:
            undo.callback(lock.release)
            reader = undo.enter_context(closing(connect(path, JOURNAL_SCHEMA)))
            writer = GroupWriter(lambda: connect(path, JOURNAL_SCHEMA), name="journal")
            undo.pop_all()
        return cls(path, reader, writer, lock)

    @classmethod
    def read(cls, folder: Path) -> Journal:
        """Open the journal in `folder` for reading only."""
        path = folder / FILE_NAME
        if not path.is_file():
            raise DamagedStore(f"there is no journal in `{folder}`", hint="`assay run` makes one")
        return cls(path, connect(path, JOURNAL_SCHEMA, readonly=True), None, None)

    def close(self) -> None:
        """Write what is waiting and let go of the run."""
        if self._writer is not None:
            self._writer.close()
        self._reader.close()
        if self._lock is not None:
            self._lock.release()

    # --- append ------------------------------------------------------------------------------------

    def _submit(self, *batch: tuple[str, Sequence[tuple[Any, ...]]]) -> Future[None]:
        if self._writer is None:
            raise DamagedStore("the journal was opened for reading only", where=str(self.path))
        return self._writer.submit([(statement, given) for statement, given in batch if given])

    def set_facts(self, facts: Mapping[str, Any]) -> Future[None]:
        """Keep facts about the run; a fact may be replaced (the time it ended), records never are."""
        given = [(key, json.dumps(value, ensure_ascii=False, default=str)) for key, value in facts.items()]
        return self._submit(("INSERT OR REPLACE INTO facts VALUES (?,?)", given))

    def add_documents(
        self, documents: Iterable[tuple[Document, Any]], requests: Iterable[tuple[Request, str]]
    ) -> Future[None]:
        """Documents with their targets; their requests with fingerprints; each prompt once."""
        document_rows = [
            (
                document.task,
                document.index,
                rows.fields_text(document.fields),
                rows.fields_text({"target": target}),
            )
            for document, target in documents
        ]
        prompts: dict[str, str] = {}
        request_rows, facts = [], []
        for request, fingerprint in requests:
            request_rows.append(rows.request_row(request, fingerprint))
            if request.prompt.digest not in prompts:
                prompts[request.prompt.digest] = rows.prompt_text(request.prompt)
            if isinstance(request, Generate) and request.settings.digest not in self._settings_kept:
                self._settings_kept.add(request.settings.digest)
                facts.append(
                    (
                        f"settings:{request.settings.digest}",
                        json.dumps(dict(request.settings.values), default=str),
                    )
                )
        return self._submit(
            ("INSERT OR IGNORE INTO facts VALUES (?,?)", facts),
            ("INSERT OR IGNORE INTO prompts VALUES (?,?)", list(prompts.items())),
            ("INSERT OR IGNORE INTO documents VALUES (?,?,?,?)", document_rows),
            ("INSERT OR REPLACE INTO requests VALUES (?,?,?,?,?,?,?,?)", request_rows),
        )

    def add_responses(self, responses: Iterable[tuple[str, Response]], *, source: str) -> Future[None]:
        """Responses under their fingerprints. Durable when the future is done."""
        now = time.time()
        given = [
            rows.response_row(fingerprint, response, source=source, at=now)
            for fingerprint, response in responses
        ]
        return self._submit((rows.INSERT_RESPONSE, given))

    def add_failures(self, failures: Iterable[tuple[str, Failure]]) -> Future[None]:
        """What nobody answered, under its fingerprint."""
        now = time.time()
        given = [
            (key, failure.kind, rows.storable(failure.message), failure.attempts, now)
            for key, failure in failures
        ]
        return self._submit(("INSERT INTO failures VALUES (?,?,?,?,?)", given))

    def add_judged(
        self,
        task: str,
        outcomes: Iterable[tuple[int, str, str]],
        answers: Iterable[Answer],
        verdicts: Iterable[Verdict],
    ) -> Future[None]:
        """How documents ended: (document, outcome, why), the answers judged, the verdicts."""
        outcome_rows = [(task, document, outcome, rows.storable(why)) for document, outcome, why in outcomes]
        answer_rows = [
            (task, answer.document, answer.pipeline, rows.fields_text({"values": answer.values}))
            for answer in answers
        ]
        verdict_rows = [rows.verdict_row(task, verdict) for verdict in verdicts]
        return self._submit(
            ("INSERT OR REPLACE INTO answers VALUES (?,?,?,?)", answer_rows),
            ("INSERT OR REPLACE INTO verdicts VALUES (?,?,?,?,?,?,?)", verdict_rows),
            ("INSERT OR REPLACE INTO outcomes VALUES (?,?,?,?)", outcome_rows),
        )

    def add_estimates(self, estimates: Iterable[Estimate]) -> Future[None]:
        """The numbers at the end, in place of those of an earlier end."""
        given = [
            (estimate.task, estimate.metric, estimate.pipeline, rows.estimate_text(estimate))
            for estimate in estimates
        ]
        return self._submit(
            ("DELETE FROM estimates WHERE 1 = ?", [(1,)]), ("INSERT INTO estimates VALUES (?,?,?,?)", given)
        )

    # --- ask ---------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Everything said about the run."""
        return {key: json.loads(value) for key, value in self.query("SELECT key, value FROM facts")}

    def finished(self, task: str) -> set[int]:
        """Documents that need nothing more: judged, and not for want of an answer."""
        query = "SELECT document FROM outcomes WHERE task = ? AND outcome != 'failed'"
        return {document for (document,) in self.query(query, (task,))}

    def find(self, fingerprints: Sequence[str]) -> dict[str, Response]:
        """The responses known under these fingerprints."""
        found: dict[str, Response] = {}
        for start in range(0, len(fingerprints), _CHUNK):
            chunk = fingerprints[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            for row in self.query(f"{rows.SELECT_RESPONSE} WHERE fingerprint IN ({marks})", chunk):
                found[row[0]] = rows.response_from_row(row)
        return found

    def verdicts(self, task: str) -> Iterator[tuple[str, str, int, str, Any]]:
        """(pipeline, metric, document, kind, value), in document order within a metric."""
        query = (
            "SELECT pipeline, metric, document, kind, value FROM verdicts WHERE task = ?"
            " ORDER BY pipeline, metric, document"
        )
        for pipeline, metric, document, kind, value in self.query(query, (task,)):
            yield pipeline, metric, document, kind, rows.verdict_value(value)

    def outcomes(self, task: str) -> dict[str, int]:
        """How many documents ended how."""
        query = "SELECT outcome, count(*) FROM outcomes WHERE task = ? GROUP BY outcome"
        return dict(self.query(query, (task,)))

    def estimates(self) -> list[Estimate]:
        """The numbers at the end, if the run got there."""
        return [
            rows.estimate_from_text(content) for (content,) in self.query("SELECT content FROM estimates")
        ]

    def count(self, table: str) -> int:
        """Rows in a table of the journal."""
        if table not in (
            "documents",
            "requests",
            "responses",
            "failures",
            "answers",
            "verdicts",
            "outcomes",
            "prompts",
        ):
            raise ValueError(table)
        ((number,),) = self.query(f"SELECT count(*) FROM {table}")
        return int(number)

    def query(self, statement: str, arguments: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of a SELECT, for exports and pages.

        Raises:
            DamagedStore: The file is not sound.
        """
        try:
            yield from self._reader.execute(statement, arguments)
        except sqlite3.ProgrammingError:
            raise  # our mistake, not the file's
        except sqlite3.DatabaseError as error:
            raise DamagedStore(f"the journal is damaged: {error}", where=str(self.path)) from None
