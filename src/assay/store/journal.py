"""The journal of one run: everything asked, answered and judged, in one SQLite file.

Appended to by one process (`RunLock`), in group commits; read by anybody at any time. Resume is subtraction:
what the journal holds is not asked again.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.core.documents import Document
from assay.core.errors import DamagedStore
from assay.core.requests import Generate, Request, Settings
from assay.core.responses import Failure, Response
from assay.core.verdicts import Answer, Estimate, Repeated, Verdict
from assay.store import rows
from assay.store.known import KnownResponses
from assay.store.lock import RunLock
from assay.store.positions import Positions
from assay.store.salvage import damaged_journal, make_sound
from assay.store.schema import JOURNAL_SCHEMA, connect
from assay.store.seal import break_seal, damaged_pages, seal
from assay.store.served import Served
from assay.store.sums import answered_is_sound
from assay.store.tables import DOCUMENTS_PER_TASK
from assay.store.token_rows import INSERT_TOKENS, SELECT_TOKENS, tokens_row, with_tokens
from assay.store.writer import GroupWriter

__all__ = ["FILE_NAME", "Journal"]

FILE_NAME = "journal.sqlite"
_CHUNK = 500
_LOG = logging.getLogger(__name__)
_COUNTED = "documents requests responses failures answers verdicts outcomes judge_requests".split()
Asked = Iterable[tuple[Document, Any, Sequence[Request], Sequence[str]]]
"""Documents with their targets, requests and fingerprints."""

_JUDGED = "FROM tasks t JOIN judged j ON j.id BETWEEN t.first AND t.last WHERE t.name = ? ORDER BY j.id"
_INSERT_TASK = "INSERT OR IGNORE INTO tasks VALUES (?,?,?)"


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
        self._known = KnownResponses()
        self._known_read = False
        self._served = Served(self.query)
        self._tasks: dict[str, int] = {}
        if writer is not None:
            self._tasks = dict(self.query("SELECT name, first FROM tasks ORDER BY first"))

    @classmethod
    def create(cls, folder: Path) -> Journal:
        """Open the journal in `folder` for writing, making both when missing.

        A damaged one is put aside, and what is sound in it carried over; that is said in the log.
        """
        lock = RunLock(folder)
        lock.acquire()
        path = folder / FILE_NAME
        with ExitStack() as undo:
            undo.callback(lock.release)
            make_sound(path)
            break_seal(path)
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
        if damaged := damaged_pages(path):
            raise damaged_journal(path, f"{len(damaged)} of its pages changed since it was closed")
        return cls(path, connect(path, JOURNAL_SCHEMA, readonly=True), None, None)

    def close(self) -> None:
        """Write what is waiting and let go of the run."""
        if self._writer is not None:
            self._writer.close()
        self._reader.close()
        if self._lock is not None:
            seal(self.path)
            self._lock.release()

    # --- append ------------------------------------------------------------------------------------

    def _submit(
        self, *batch: tuple[str, Sequence[tuple[Any, ...]]], at_leisure: bool = False
    ) -> Future[None]:
        """Hand rows to the writer; those `at_leisure`, for which nobody waits, go with what comes next."""
        if self._writer is None:
            raise DamagedStore("the journal was opened for reading only", where=str(self.path))
        return self._writer.submit([pair for pair in batch if pair[1]], at_leisure=at_leisure)

    def settle(self) -> Future[None]:
        """Done when everything that was handed over before is on disk."""
        return self._submit()

    def set_facts(self, facts: Mapping[str, Any]) -> Future[None]:
        """Keep facts about the run; a fact may be replaced (the time it ended), records never are."""
        given = [(key, json.dumps(value, ensure_ascii=False, default=str)) for key, value in facts.items()]
        return self._submit(("INSERT OR REPLACE INTO facts VALUES (?,?)", given))

    def add_documents(self, documents: Asked, *, at_leisure: bool = False) -> Future[None]:
        """Documents and what is asked about them, in place of what was said of them before."""
        given, facts = [], []
        tasks: list[tuple[str, int, int]] = []
        settings: Settings | None = None
        for document, target, requests, fingerprints in documents:
            first = self._tasks.get(document.task)
            if first is None:
                first = self._number_task(document.task, tasks)
            fields, asked = rows.fields_text(document.fields), rows.requests_text(requests, fingerprints)
            given.append((first + document.index, fields, rows.target_text(target), len(requests), asked))
            for request in requests:
                if isinstance(request, Generate) and request.settings is not settings:
                    settings = request.settings  # most requests share theirs
                    if settings.digest not in self._settings_kept:
                        self._settings_kept.add(settings.digest)
                        content = json.dumps(dict(settings.values), default=str)
                        facts.append((f"settings:{settings.digest}", content))
        return self._submit(
            ("INSERT OR IGNORE INTO facts VALUES (?,?)", facts),
            (_INSERT_TASK, tasks),
            ("INSERT OR REPLACE INTO asked VALUES (?,?,?,?,?)", given),
            at_leisure=at_leisure,
        )

    def _number_task(self, task: str, new: list[tuple[str, int, int]]) -> int:
        """Where the rows of a task begin; room is made for one that is new."""
        first = self._tasks[task] = len(self._tasks) * DOCUMENTS_PER_TASK
        new.append((task, first, first + DOCUMENTS_PER_TASK - 1))
        return first

    def add_judge_request(self, request: Generate, fingerprint: str, *, judge: str) -> Future[None]:
        """What a judge is asked about a document, with its prompt and settings."""
        settings = request.settings
        fact = (f"settings:{settings.digest}", json.dumps(dict(settings.values), default=str))
        return self._submit(
            ("INSERT OR IGNORE INTO facts VALUES (?,?)", [fact]),
            (rows.INSERT_JUDGE_REQUEST, [rows.judge_request_row(request, fingerprint, judge)]),
        )

    def add_responses(
        self,
        responses: Iterable[tuple[str, Response]],
        *,
        source: str,
        who: str = "",
        at_leisure: bool = False,
    ) -> Future[None]:
        """Responses of the model, or of the judge `who`, by fingerprint; the first one kept stays. Durable when done."""
        now = time.time()
        fresh = dict(responses)
        known = self._known_rows()
        for name in self._kept(list(fresh)):
            del fresh[name]
        given, facts, tokens = [], list[tuple[str, str]](), []
        for number, (name, response) in zip(known.add_new(fresh), fresh.items(), strict=True):
            served = self._served.apart(response.served, who, facts) if response.served else ""
            given.append(rows.answered_row(number, name, response, source=source, at=now, served=served))
            if response.tokens is not None:
                tokens.append(tokens_row(number, given[-1][1:5], response.tokens))
        return self._submit(
            ("INSERT OR REPLACE INTO facts VALUES (?,?)", facts),
            (rows.INSERT_ANSWERED, given),
            (INSERT_TOKENS, tokens),
            at_leisure=at_leisure,
        )

    def add_failures(
        self, failures: Iterable[tuple[str, Failure]], *, at_leisure: bool = False
    ) -> Future[None]:
        """What nobody answered, under its fingerprint."""
        now = time.time()
        given = [
            (key, rows.storable(failure.kind), rows.storable(failure.message), failure.attempts, now)
            for key, failure in failures
        ]
        return self._submit(("INSERT INTO failures VALUES (?,?,?,?,?)", given), at_leisure=at_leisure)

    def add_judged(
        self,
        task: str,
        outcomes: Iterable[tuple[int, str, str]],
        answers: Iterable[Answer],
        verdicts: Iterable[Verdict],
        repeats: Iterable[Repeated] = (),
        *,
        at_leisure: bool = False,
    ) -> Future[None]:
        """How documents ended: (document, outcome, why), the answers judged, the verdicts; and each repeat by itself."""
        answers_of = rows.by_document(answers)
        verdicts_of = rows.by_document(verdicts)
        tasks: list[tuple[str, int, int]] = []
        first = self._tasks.get(task)
        if first is None:
            first = self._number_task(task, tasks)
        given = [
            (
                first + document,
                outcome,
                rows.storable(why) if why else "",
                rows.answers_text(answers_of.get(document, ())),
                rows.verdicts_text(verdicts_of.get(document, ())),
            )
            for document, outcome, why in outcomes
        ]
        return self._submit(
            (_INSERT_TASK, tasks),
            ("INSERT OR REPLACE INTO judged VALUES (?,?,?,?,?)", given),
            ("INSERT OR REPLACE INTO filter_steps VALUES (?,?)", rows.steps_rows(first, answers_of)),
            ("INSERT OR REPLACE INTO repeats VALUES (?,?)", rows.repeats_rows(first, repeats)),
            at_leisure=at_leisure,
        )

    def add_estimates(self, estimates: Iterable[Estimate]) -> Future[None]:
        """The numbers at the end, in place of those of an earlier end."""
        given = [(one.task, one.metric, one.pipeline, rows.estimate_text(one)) for one in estimates]
        return self._submit(
            ("DELETE FROM estimates WHERE 1 = ?", [(1,)]), ("INSERT INTO estimates VALUES (?,?,?,?)", given)
        )

    # --- ask ---------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Everything said about the run."""
        with self.decoding():
            return {key: json.loads(value) for key, value in self.query("SELECT key, value FROM facts")}

    def finished(self, task: str, *, retry_failed: bool = True) -> AbstractSet[int]:
        """Documents that need nothing more: judged, and not for want of an answer (unless that is taken as it is)."""
        query = "SELECT document FROM outcomes WHERE task = ?"
        if retry_failed:
            query += " AND outcome NOT IN ('failed', 'judge-failed')"
        return Positions(document for (document,) in self.query(query, (task,)))

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """The responses known under these fingerprints; with their `tokens`, where these are kept and wanted."""
        wanted = set(fingerprints)
        found: dict[str, Response] = {}
        unsound: list[str] = []
        for row in self._rows_of(fingerprints, rows.SELECT_ANSWERED):
            if row[0] in wanted:
                if answered_is_sound(row):
                    found[row[0]] = rows.response_from_answered(row)
                else:
                    unsound.append(row[0])
        if unsound:
            self._forget(unsound)
        return found | with_tokens(found, self._rows_of(list(found), SELECT_TOKENS)) if tokens else found

    def _forget(self, fingerprints: Sequence[str]) -> None:
        """Answers that changed on the disk are no answers: they are asked for again."""
        _LOG.warning("%d answers in `%s` are damaged; they are not used", len(fingerprints), self.path)
        if self._writer is not None:
            self._submit((rows.DELETE_ANSWERED, [(mark,) for mark in fingerprints])).result()
            for mark in fingerprints:
                self._known.forget(mark)

    def _kept(self, fingerprints: Sequence[str]) -> list[str]:
        """Those of the fingerprints under which something is kept, or about to be."""
        known = self._known_rows()
        kept = [name for name in fingerprints if known.recent(name)]
        if known.older:
            wanted = set(fingerprints).difference(kept)
            found = self._rows_of(list(wanted), "SELECT fingerprint FROM answered")
            kept += {name for (name,) in found if name in wanted}
        return kept

    def _rows_of(self, fingerprints: Sequence[str], select: str) -> Iterator[tuple[Any, ...]]:
        numbers = self._known_rows().rows(fingerprints)
        for start in range(0, len(numbers), _CHUNK):
            chunk = numbers[start : start + _CHUNK]
            yield from self.query(f"{select} WHERE id IN ({','.join(map(str, chunk))})")

    def _known_rows(self) -> KnownResponses:
        """What is known of the responses in the file: read once by who writes it, kept up with by who reads it."""
        if self._writer is None or not self._known_read:
            self._known_read = True
            query = "SELECT fingerprint, id FROM answered WHERE id >= ? ORDER BY id"
            self._known.extend(self.query(query, (self._known.next,)))
        return self._known

    def asked(self, task: str) -> Iterator[tuple[int, str, str, str]]:
        """(document, fields, target, requests) as texts, in document order."""
        query = (
            "SELECT a.id - t.first, a.fields, a.target, a.requests FROM tasks t"
            " JOIN asked a ON a.id BETWEEN t.first AND t.last WHERE t.name = ? ORDER BY a.id"
        )
        yield from self.query(query, (task,))

    def judged(self, task: str) -> Iterator[tuple[int, str, str]]:
        """(document, answers, verdicts) as texts, in document order."""
        yield from self.query(f"SELECT j.id - t.first, j.answers, j.verdicts {_JUDGED}", (task,))

    def verdicts(self, task: str) -> Iterator[tuple[str, str, int, str, Any]]:
        """(pipeline, metric, document, kind, value), in document order."""
        query = f"SELECT j.id - t.first, j.verdicts {_JUDGED}"
        read = lru_cache(maxsize=1024)(rows.from_json)  # what is right or wrong says the same all over
        with self.decoding():
            for document, content in self.query(query, (task,)):
                for pipeline, metric, kind, value, _ in read(content):
                    kept = value if type(value) is float else rows.verdict_value(value)
                    yield pipeline, metric, document, kind, kept

    def repeats(self, task: str) -> Iterator[Repeated]:
        """Each answer by itself, of documents that were answered several times, in document order."""
        query = (
            "SELECT r.id - t.first, r.content FROM tasks t JOIN repeats r ON r.id BETWEEN t.first AND t.last"
            " WHERE t.name = ? ORDER BY r.id"
        )
        with self.decoding():
            for document, content in self.query(query, (task,)):
                yield from rows.repeats_from_text(document, content)

    def outcomes(self, task: str) -> dict[str, int]:
        """How many documents ended how."""
        query = "SELECT outcome, count(*) FROM outcomes WHERE task = ? GROUP BY outcome"
        return dict(self.query(query, (task,)))

    def unanswered(self) -> tuple[int, int]:
        """How many requests nobody answered, and out of how many; a document without a prompt counts as one."""
        ((total,),) = self.query("SELECT coalesce(sum(count), 0) FROM asked")
        ((not_rendered,),) = self.query(
            "SELECT count(*) FROM judged j LEFT JOIN asked a ON a.id = j.id"
            " WHERE j.outcome = 'failed' AND coalesce(a.count, 0) = 0"
        )
        failed = 0
        open_documents = (
            "SELECT a.requests FROM asked a LEFT JOIN judged j ON j.id = a.id"
            " WHERE a.count > 0 AND (j.outcome IS NULL OR j.outcome = 'failed')"
        )
        for (content,) in self.query(open_documents):
            names = [request[5] for request in json.loads(content)["requests"]]
            answered = self.find(names)
            failed += sum(name not in answered for name in names)
        return failed + not_rendered, total + not_rendered

    def estimates(self) -> list[Estimate]:
        """The numbers at the end, if the run got there."""
        with self.decoding():
            return [
                rows.estimate_from_text(content) for (content,) in self.query("SELECT content FROM estimates")
            ]

    def count(self, table: str) -> int:
        """Rows in a table of the journal."""
        if table not in _COUNTED:
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
            raise damaged_journal(self.path, error) from None

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """What cannot be decoded is damage, not a mistake of ours."""
        try:
            yield
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise damaged_journal(self.path, error) from None
