"""The journal of a run: all requests, responses and verdicts in one SQLite file.

One process appends to it (`RunLock`) in batched commits; any process can read it at any time. Resuming a run skips
everything the journal contains.
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

from assay.core.errors import CorruptStore
from assay.core.records.agents import AgentEvent
from assay.core.records.documents import Document
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Failure, Response
from assay.core.records.verdicts import Answer, Estimate, RepeatScores, Verdict
from assay.store.database.locks import RunLock, is_locked
from assay.store.database.schema import JOURNAL_SCHEMA, open_database
from assay.store.database.tables import MAX_DOCUMENTS_PER_TASK, RETRIED_LIST
from assay.store.database.writer import BatchWriter
from assay.store.integrity.damage import build_damage_error, describe_damage
from assay.store.integrity.page_checksums import delete_page_checksums, write_page_checksums
from assay.store.integrity.repair import repair_journal_if_damaged
from assay.store.integrity.row_checksums import (
    UNCHECKED,
    RowVerifier,
    add_checked_views,
    compute_joined_checksum,
    is_answered_row_intact,
)
from assay.store.journal import rows
from assay.store.journal.document_set import DocumentSet
from assay.store.journal.response_index import ResponseIndex
from assay.store.journal.server_identity import ServerIdentityTracker
from assay.store.journal.token_rows import INSERT_TOKENS, SELECT_TOKENS, attach_tokens, build_tokens_row

__all__ = ["JOURNAL_FILE", "Journal"]

JOURNAL_FILE = "journal.sqlite"
_LOOKUP_BATCH = 500
_MAX_SCANNED = 64
_MAX_SCANS = 10
"""Lookups of a reader, with so many fingerprints each, that scan the table; further ones load the index."""

_SETTINGS_KEY_LENGTH = 8
"""Characters of the digest of settings that requests refer to."""

_LOG = logging.getLogger(__name__)
_COUNTABLE_TABLES = "documents requests responses failures answers verdicts outcomes judge_requests".split()
DocumentsToAsk = Iterable[tuple[Document, Any, Sequence[Request], Sequence[str]]]
"""Documents with their targets, requests and fingerprints."""

_FROM_JUDGED = "FROM tasks t JOIN judged j ON j.id BETWEEN t.first AND t.last WHERE t.name = ? ORDER BY j.id"
_FROM_SOME_JUDGED = (
    "FROM json_each(?) d JOIN tasks t ON t.name = ? JOIN judged j ON j.id = t.first + d.value"
    " WHERE j.id <= t.last ORDER BY j.id"
)
_FROM_ROWS = "FROM tasks t JOIN main.{} r ON r.id BETWEEN t.first AND t.last WHERE t.name = ?"
_MAX_DOCUMENTS = 2**62
"""SQLite has no larger integers."""

_INSERT_TASK = "INSERT OR IGNORE INTO tasks VALUES (?,?,?,?)"
_INSERT_FACT = "INSERT OR IGNORE INTO facts VALUES (?,?,?)"
_REPLACE_FACT = "INSERT OR REPLACE INTO facts VALUES (?,?,?)"


class Journal:
    """Reads and writes the journal. Open it with `open_for_writing` or `open_readonly`."""

    def __init__(
        self, path: Path, reader: sqlite3.Connection, writer: BatchWriter | None, lock: RunLock | None
    ) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._lock = lock
        self._settings_keys: dict[str, str] = {}
        """Digest of settings -> the key under which the facts have them."""

        self._response_index = ResponseIndex()
        self._response_index_loaded = False
        self._scans = 0
        self._server_identity = ServerIdentityTracker()
        self._tasks: dict[str, int] = {}
        ((version,),) = reader.execute("PRAGMA user_version")
        self._verifier: RowVerifier | None = None
        if version == JOURNAL_SCHEMA.version:
            self._verifier = add_checked_views(reader, JOURNAL_SCHEMA.tables)
        if writer is not None:
            self._tasks = dict(self.query("SELECT name, first FROM tasks ORDER BY first"))

    @classmethod
    def open_for_writing(cls, folder: Path) -> Journal:
        """Open the journal in `folder` for writing; create both if missing.

        A damaged journal is moved aside and its intact responses are copied to a new one, with a warning in the log.
        """
        lock = RunLock(folder)
        lock.acquire()
        path = folder / JOURNAL_FILE
        with ExitStack() as undo:
            undo.callback(lock.release)
            repair_journal_if_damaged(path)
            delete_page_checksums(path)
            reader = undo.enter_context(closing(open_database(path, JOURNAL_SCHEMA)))
            writer = BatchWriter(lambda: open_database(path, JOURNAL_SCHEMA), name="journal", path=path)
            undo.pop_all()
        return cls(path, reader, writer, lock)

    @classmethod
    def open_readonly(cls, folder: Path) -> Journal:
        """Open the journal in `folder` for reading only.

        Raises:
            CorruptStore: There is no journal, or it is damaged. While a run writes it, rows are checked when they are read.
        """
        path = folder / JOURNAL_FILE
        if not path.is_file():
            raise CorruptStore(f"there is no journal in `{folder}`", hint="`assay run` creates one")
        if not is_locked(folder) and (damage := describe_damage(path)):
            raise build_damage_error(path, damage)
        return cls(path, open_database(path, JOURNAL_SCHEMA, readonly=True), None, None)

    def close(self) -> None:
        """Write pending rows and release the lock."""
        if self._writer is not None:
            self._writer.close()
        self._reader.close()
        if self._lock is not None:
            write_page_checksums(self.path)
            self._lock.release()

    def __del__(self) -> None:
        """Close the file of a run that a caller drops without closing it. `sqlite3` closes it only at the next garbage
        collection, because a connection refers to itself."""
        if self._writer is None:
            self._reader.close()

    # --- append ------------------------------------------------------------------------------------

    def _submit(self, *batch: tuple[str, Sequence[tuple[Any, ...]]], deferred: bool = False) -> Future[None]:
        """Submit rows to the writer. `deferred` rows are committed with the next ones."""
        if self._writer is None:
            raise CorruptStore("the journal was opened for reading only", where=str(self.path))
        return self._writer.submit([pair for pair in batch if pair[1]], deferred=deferred)

    def flush(self) -> Future[None]:
        """Return a future that is done when all rows submitted before are on disk."""
        return self._submit()

    def set_facts(self, facts: Mapping[str, Any]) -> Future[None]:
        """Store facts about the run. Facts can be replaced (such as the end time), records cannot."""
        return self._submit((_REPLACE_FACT, [rows.build_fact_row(*fact) for fact in facts.items()]))

    def add_documents(self, documents: DocumentsToAsk, *, deferred: bool = False) -> Future[None]:
        """Store documents and their requests; replaces earlier rows of the same documents."""
        given, facts = [], []
        tasks: list[tuple[Any, ...]] = []
        settings: Settings | None = None
        for document, target, requests, fingerprints in documents:
            first = self._tasks.get(document.task)
            if first is None:
                first = self._add_task(document.task, tasks)
            fields = rows.encode_fields(document.fields)
            for request in requests:
                if isinstance(request, Generate) and request.settings is not settings:
                    settings = request.settings  # most requests share their settings
                    if settings.digest not in self._settings_keys:
                        facts.append(self._add_settings(settings))
            asked = rows.encode_requests(requests, fingerprints, document.prompt_fields, self._settings_keys)
            row, shown_target, count = first + document.index, rows.encode_target(target), len(requests)
            crc = compute_joined_checksum(f"{row}\0{fields}\0{shown_target}\0{count}\0{asked}")
            given.append((row, fields, shown_target, count, asked, crc))
        return self._submit(
            (_INSERT_FACT, facts),
            (_INSERT_TASK, tasks),
            ("INSERT OR REPLACE INTO asked VALUES (?,?,?,?,?,?)", given),
            deferred=deferred,
        )

    def _add_settings(self, settings: Settings) -> tuple[Any, ...]:
        """Choose a key for settings; return the fact. The key is short, because every request repeats it, unless other
        settings have it."""
        digest = settings.digest
        key = digest[:_SETTINGS_KEY_LENGTH]
        row = _build_settings_row(key, settings)
        stored = self.query("SELECT value FROM facts WHERE key = ?", (f"settings:{key}",))
        if key in self._settings_keys.values() or any(value != row[1] for (value,) in stored):
            key, row = digest, _build_settings_row(digest, settings)
        self._settings_keys[digest] = key
        return row

    def _add_task(self, task: str, new: list[tuple[Any, ...]]) -> int:
        """Reserve row ids for a new task; return the first one."""
        last = max(self._tasks.values(), default=-MAX_DOCUMENTS_PER_TASK)  # a repaired journal can lack tasks
        first = self._tasks[task] = last + MAX_DOCUMENTS_PER_TASK
        new.append(rows.add_checksum((task, first, first + MAX_DOCUMENTS_PER_TASK - 1)))
        return first

    def add_judge_request(self, request: Generate, fingerprint: str, *, judge: str) -> Future[None]:
        """Store a judge request with its prompt and settings."""
        return self._submit(
            (_INSERT_FACT, [_build_settings_row(request.settings.digest, request.settings)]),
            (rows.INSERT_JUDGE_REQUEST, [rows.build_judge_request_row(request, fingerprint, judge)]),
        )

    def add_responses(
        self,
        responses: Iterable[tuple[str, Response]],
        *,
        source: str,
        judge: str = "",
        deferred: bool = False,
    ) -> Future[None]:
        """Store responses of the model, or of `judge`, by fingerprint. Stored responses are not replaced."""
        now = time.time()
        new = dict(responses)
        known = self._load_response_index()
        for name in self._filter_stored(list(new)):
            del new[name]
        facts: list[tuple[Any, ...]] = []
        identify = self._server_identity.record
        given = rows.build_answered_rows(
            [
                (
                    number,
                    name,
                    response,
                    response.served and identify(response.served, judge, facts, self.query),
                )
                for number, (name, response) in zip(known.add_new(new), new.items(), strict=True)
            ],
            source=source,
            at=now,
        )
        tokens = [
            build_tokens_row(row[0], row[1:5], response.tokens)
            for row, response in zip(given, new.values(), strict=True)
            if response.tokens is not None
        ]
        return self._submit(
            (_REPLACE_FACT, facts),
            (rows.INSERT_ANSWERED, given),
            (INSERT_TOKENS, tokens),
            deferred=deferred,
        )

    def add_failures(
        self, failures: Iterable[tuple[str, Failure]], *, deferred: bool = False
    ) -> Future[None]:
        """Store failed requests by fingerprint."""
        now = time.time()
        given = [
            rows.add_checksum(
                (
                    key,
                    rows.replace_surrogates(failure.kind),
                    rows.replace_surrogates(failure.message),
                    int(failure.attempts),
                    now,
                )
            )
            for key, failure in failures
        ]
        return self._submit(("INSERT INTO failures VALUES (?,?,?,?,?,?)", given), deferred=deferred)

    def add_judged(
        self,
        task: str,
        outcomes: Iterable[tuple[int, str, str]],
        answers: Iterable[Answer],
        verdicts: Iterable[Verdict],
        repeats: Iterable[RepeatScores] = (),
        *,
        deferred: bool = False,
    ) -> Future[None]:
        """Store the outcomes of documents (document, outcome, reason), their answers, verdicts and repeat scores."""
        answers_by_document = rows.group_by_document(answers)
        verdicts_by_document = rows.group_by_document(verdicts)
        tasks: list[tuple[Any, ...]] = []
        first = self._tasks.get(task)
        if first is None:
            first = self._add_task(task, tasks)
        given = []
        for document, outcome, why in outcomes:
            row, why = first + document, rows.replace_surrogates(why) if why else ""
            shown_answers = rows.encode_answers(answers_by_document.get(document, ()))
            shown_verdicts = rows.encode_verdicts(verdicts_by_document.get(document, ()))
            crc = compute_joined_checksum(f"{row}\0{outcome}\0{why}\0{shown_answers}\0{shown_verdicts}")
            given.append((row, outcome, why, shown_answers, shown_verdicts, crc))
        return self._submit(
            (_INSERT_TASK, tasks),
            ("INSERT OR REPLACE INTO judged VALUES (?,?,?,?,?,?)", given),
            (
                "INSERT OR REPLACE INTO filter_steps VALUES (?,?,?)",
                rows.build_filter_step_rows(first, answers_by_document),
            ),
            ("INSERT OR REPLACE INTO repeats VALUES (?,?,?)", rows.build_repeat_rows(first, repeats)),
            deferred=deferred,
        )

    def add_agent_events(
        self, task: str, document: int, repeat: int, events: Sequence[AgentEvent]
    ) -> Future[None]:
        """Store events of an agent. They are never replaced."""
        tasks: list[tuple[Any, ...]] = []
        first = self._tasks.get(task)
        if first is None:
            first = self._add_task(task, tasks)
        now = time.time()
        given = [
            rows.add_checksum(
                (
                    first + document,
                    repeat,
                    event.number,
                    event.kind,
                    rows.encode_fields(event.content),
                    now,
                )
            )
            for event in events
        ]
        return self._submit((_INSERT_TASK, tasks), ("INSERT INTO agent_events VALUES (?,?,?,?,?,?,?)", given))

    def add_estimates(self, estimates: Iterable[Estimate]) -> Future[None]:
        """Store the estimates; replaces earlier ones."""
        given = [
            rows.add_checksum(
                (estimate.task, estimate.metric, estimate.pipeline, rows.encode_estimate(estimate))
            )
            for estimate in estimates
        ]
        return self._submit(
            ("DELETE FROM estimates WHERE 1 = ?", [(1,)]), ("INSERT INTO estimates VALUES (?,?,?,?,?)", given)
        )

    # --- read --------------------------------------------------------------------------------------

    def read_facts(self) -> dict[str, Any]:
        """Return all facts about the run."""
        with self.report_decode_errors():
            return {key: json.loads(value) for key, value in self.query("SELECT key, value FROM facts")}

    def finished_documents(self, task: str, *, retry_failed: bool = True) -> AbstractSet[int]:
        """Return the finished documents of a task; failed ones are included only if they are not retried."""
        query = "SELECT document FROM outcomes WHERE task = ?"
        if retry_failed:
            query += f" AND outcome NOT IN {RETRIED_LIST}"
        return DocumentSet(document for (document,) in self.query(query, (task,)))

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """Return the stored responses by fingerprint; with `tokens`, their tokens are attached if stored."""
        wanted = set(fingerprints)
        found: dict[str, Response] = {}
        damaged: list[str] = []
        numbers = self._find_rows(fingerprints)
        for row in self._read_rows(numbers, rows.SELECT_ANSWERED):
            if row[0] in wanted:
                if is_answered_row_intact(row) or (row[-1] is None and self._verifier is None):
                    found[row[0]] = rows.response_from_answered(row)
                else:
                    damaged.append(row[0])
        if damaged:
            self._discard_damaged(damaged)
        return found | attach_tokens(found, self._read_rows(numbers, SELECT_TOKENS)) if tokens else found

    def _discard_damaged(self, fingerprints: Sequence[str]) -> None:
        """Delete responses that changed on disk during the run, so that they are requested again."""
        if self._writer is None:
            raise build_damage_error(
                self.path, f"the checksums of {len(fingerprints)} responses do not match"
            )
        _LOG.warning("ignoring %d damaged responses in `%s`", len(fingerprints), self.path)
        self._submit((rows.DELETE_ANSWERED, [(fingerprint,) for fingerprint in fingerprints])).result()
        for fingerprint in fingerprints:
            self._response_index.discard(fingerprint)

    def _filter_stored(self, fingerprints: Sequence[str]) -> list[str]:
        """Return the fingerprints that have a stored or pending response."""
        known = self._load_response_index()
        stored = [name for name in fingerprints if known.is_recent(name)]
        if known.has_older:
            wanted = set(fingerprints).difference(stored)
            found = self._read_rows(self._find_rows(list(wanted)), "SELECT fingerprint FROM answered")
            stored += {name for (name,) in found if name in wanted}
        return stored

    def _read_rows(self, numbers: Sequence[int], select: str) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(numbers), _LOOKUP_BATCH):
            chunk = numbers[start : start + _LOOKUP_BATCH]
            yield from self.query(f"{select} WHERE id IN ({','.join(map(str, chunk))})")

    def _find_rows(self, fingerprints: Sequence[str]) -> list[int]:
        """Return the rows that may contain these fingerprints: at first by scanning the table, if a reader looks for a few.

        A scan takes a tenth of the time that it takes to load the index.
        """
        if self._writer is not None or self._response_index_loaded or len(fingerprints) > _MAX_SCANNED:
            return self._load_response_index().find_candidate_rows(fingerprints)
        self._scans += 1
        if self._scans > _MAX_SCANS:
            return self._load_response_index().find_candidate_rows(fingerprints)
        select = "SELECT id FROM main.answered WHERE fingerprint IN (SELECT value FROM json_each(?))"
        return [row for (row,) in self.query(select, (json.dumps(list(fingerprints)),))]

    def _load_response_index(self) -> ResponseIndex:
        """Return the response index. A writer loads it once; a reader extends it on every call."""
        if self._writer is None or not self._response_index_loaded:
            self._response_index_loaded = True
            query = "SELECT fingerprint, id FROM main.answered WHERE id >= ? ORDER BY id"
            self._response_index.extend(self.query(query, (self._response_index.next_row,)))
        return self._response_index

    def read_documents(self, task: str) -> Iterator[tuple[int, str, str, str]]:
        """Yield (document, fields, target, requests) as JSON, in document order."""
        query = (
            "SELECT a.id - t.first, a.fields, a.target, a.unchecked_requests FROM tasks t"
            " JOIN asked a ON a.id BETWEEN t.first AND t.last WHERE t.name = ? ORDER BY a.id"
        )
        yield from self.query(query, (task,))

    def read_document_numbers(self, task: str, *, limit: int = -1) -> list[int]:
        """Return the numbers of the documents of a task that were asked or judged, in order; at most `limit` if given."""
        first = "SELECT r.id - t.first AS number {} ORDER BY r.id LIMIT ?"
        parts = (
            f"SELECT number FROM ({first.format(_FROM_ROWS.format(table))})" for table in ("asked", "judged")
        )
        query = f"{' UNION '.join(parts)} ORDER BY number LIMIT ?"
        return [number for (number,) in self.query(query, (task, limit, task, limit, limit))]

    def count_documents(self, task: str) -> int:
        """Return the number of documents of a task that were asked or judged."""
        not_asked = "NOT EXISTS (SELECT 1 FROM main.asked a WHERE a.id = r.id)"
        query = (
            f"SELECT (SELECT count(*) {_FROM_ROWS.format('asked')})"
            f" + (SELECT count(*) {_FROM_ROWS.format('judged')} AND {not_asked})"
        )
        ((number,),) = self.query(query, (task, task))
        return int(number)

    def find_document_numbers(self, task: str, numbers: Sequence[int]) -> list[int]:
        """Return those of the numbers that are documents of a task, in order."""
        query = (
            "SELECT d.value FROM json_each(?) d JOIN tasks t ON t.name = ? WHERE t.first + d.value <= t.last AND"
            " (EXISTS (SELECT 1 FROM main.asked WHERE id = t.first + d.value)"
            " OR EXISTS (SELECT 1 FROM main.judged WHERE id = t.first + d.value)) ORDER BY d.value"
        )
        wanted = json.dumps([number for number in {*numbers} if number < _MAX_DOCUMENTS])
        return [number for (number,) in self.query(query, (wanted, task))]

    def read_field(self, task: str, name: str) -> Iterator[tuple[int, Any]]:
        """Yield (document, value of one field) in document order; dots separate nested names, None is a missing field."""
        path = "$." + ".".join(f'"{part}"' for part in name.split("."))
        query = (
            "SELECT a.id - t.first, json_extract(a.fields, ?) FROM tasks t"
            " JOIN asked a ON a.id BETWEEN t.first AND t.last WHERE t.name = ? ORDER BY a.id"
        )
        yield from self.query(query, (path, task))

    def read_judged(self, task: str) -> Iterator[tuple[int, str, str]]:
        """Yield (document, answers, verdicts) as JSON, in document order."""
        yield from self.query(
            f"SELECT j.id - t.first, j.answers, j.unchecked_verdicts {_FROM_JUDGED}", (task,)
        )

    def read_verdicts(
        self, task: str, documents: Sequence[int] | None = None
    ) -> Iterator[tuple[str, str, int, str, Any]]:
        """Yield (pipeline, metric, document, kind, value) in document order; of these documents only if given."""
        query = (
            f"SELECT j.id - t.first, j.verdicts {_FROM_JUDGED if documents is None else _FROM_SOME_JUDGED}"
        )
        arguments = (task,) if documents is None else (json.dumps(documents), task)
        read = lru_cache(maxsize=1024)(rows.parse_json)  # most verdicts have the same few texts
        with self.report_decode_errors():
            for document, content in self.query(query, arguments):
                for pipeline, metric, kind, value, _ in read(content):
                    decoded = value if type(value) is float else rows.decode_verdict_value(value)
                    yield pipeline, metric, document, kind, decoded

    def count_verdicts(self, task: str) -> list[tuple[str, str, int]]:
        """Return (outcome, verdicts as JSON, number of documents) of the different verdicts of a task."""
        query = (
            "SELECT j.outcome, j.verdicts, count(*) FROM tasks t JOIN main.judged j ON j.id BETWEEN t.first AND t.last"
            " WHERE t.name = ? GROUP BY j.verdicts, j.outcome"
        )
        return list(self.query(query, (task,)))

    def find_documents_by_verdicts(
        self, task: str, verdicts: Sequence[tuple[str, str]], *, limit: int = -1
    ) -> list[tuple[int, str, str]]:
        """Return (document, outcome, verdicts as JSON) of the documents with one of these (outcome, verdicts), in document order;
        at most `limit` if given."""
        query = (
            "SELECT j.id - t.first, j.outcome, j.verdicts FROM tasks t JOIN main.judged j ON j.id BETWEEN t.first AND t.last"
            " WHERE t.name = ? AND (j.outcome, j.verdicts) IN"
            " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)) ORDER BY j.id LIMIT ?"
        )
        return list(self.query(query, (task, json.dumps(verdicts), limit)))

    def find_documents_by_outcome(self, task: str, endings: Sequence[str], *, limit: int = -1) -> list[int]:
        """Return the documents with one of these outcomes (`open`: asked and not finished), in order; at most `limit` if given."""
        query = (
            f"SELECT r.id - t.first AS number {_FROM_ROWS.format('judged')}"
            " AND r.outcome IN (SELECT value FROM json_each(?))"
        )
        arguments: list[Any] = [task, json.dumps(endings)]
        if "open" in endings:
            query += (
                f" UNION SELECT r.id - t.first AS number {_FROM_ROWS.format('asked')}"
                " AND NOT EXISTS (SELECT 1 FROM main.judged j WHERE j.id = r.id)"
            )
            arguments.append(task)
        query += " ORDER BY number LIMIT ?"
        return [number for (number,) in self.query(query, (*arguments, limit))]

    def read_repeats(self, task: str) -> Iterator[RepeatScores]:
        """Yield the repeat scores in document order."""
        query = (
            "SELECT r.id - t.first, r.content FROM tasks t JOIN repeats r ON r.id BETWEEN t.first AND t.last"
            " WHERE t.name = ? ORDER BY r.id"
        )
        with self.report_decode_errors():
            for document, content in self.query(query, (task,)):
                yield from rows.decode_repeats(document, content)

    def read_agent_events(self, task: str, document: int) -> dict[int, list[AgentEvent]]:
        """Return the events of the agents of a document by repeat, in order."""
        query = (
            "SELECT e.repeat, e.number, e.kind, e.content FROM tasks t JOIN agent_events e ON e.id = t.first + ?"
            " WHERE t.name = ? ORDER BY e.repeat, e.number"
        )
        found: dict[int, list[AgentEvent]] = {}
        with self.report_decode_errors():
            for repeat, number, kind, content in self.query(query, (document, task)):
                found.setdefault(repeat, []).append(AgentEvent(number, kind, rows.parse_json(content)))
        return found

    def read_agent_pins(self, task: str) -> list[dict[str, Any]]:
        """Return the different things that the agents of a task pinned when they were opened, in document order."""
        query = (
            "SELECT e.content FROM tasks t JOIN agent_events e ON e.id BETWEEN t.first AND t.last"
            " WHERE t.name = ? AND e.kind = 'opened' AND instr(e.content, 'pins') > 0 ORDER BY e.id, e.repeat"
        )
        found: list[dict[str, Any]] = []
        with self.report_decode_errors():
            for (content,) in self.query(query, (task,)):
                pins = rows.parse_json(content).get("pins")
                if pins and pins not in found:
                    found.append(pins)
        return found

    def read_agent_ends(self, task: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield (document, repeat, result without the transcript) of every agent that ended, in document order."""
        query = (
            "SELECT e.id - t.first, e.repeat, e.content FROM tasks t JOIN agent_events e"
            " ON e.id BETWEEN t.first AND t.last WHERE t.name = ? AND e.kind = 'end' ORDER BY e.id, e.repeat"
        )
        with self.report_decode_errors():
            for document, repeat, content in self.query(query, (task,)):
                yield document, repeat, rows.parse_json(content)

    def count_outcomes(self, task: str) -> dict[str, int]:
        """Return the number of documents of a task by outcome."""
        query = "SELECT outcome, count(*) FROM main.outcomes WHERE task = ? GROUP BY outcome"
        return dict(self.query(query, (task,)))

    def read_endings(self, task: str, documents: Sequence[int]) -> dict[int, str]:
        """Return the outcomes of these documents, as far as they are finished."""
        query = f"SELECT j.id - t.first, j.outcome {_FROM_SOME_JUDGED}"
        return dict(self.query(query, (json.dumps(documents), task)))

    def read_outcomes(
        self, task: str, *, only: str | None = None, exclude: str | None = None
    ) -> Iterator[tuple[int, str, str]]:
        """Yield (document, outcome, reason) in document order, of one outcome or of all but one if given."""
        query = "SELECT j.id - t.first, j.outcome, j.why FROM tasks t JOIN judged j ON j.id BETWEEN t.first AND t.last WHERE t.name = ?"
        arguments = [task]
        if only is not None:
            query += " AND j.outcome = ?"
            arguments.append(only)
        if exclude is not None:
            query += " AND j.outcome != ?"
            arguments.append(exclude)
        yield from self.query(f"{query} ORDER BY j.id", arguments)

    def read_outcome_reasons(self, task: str, *, limit: int) -> list[tuple[int, int, str, str]]:
        """Return (first document, number of documents, outcome, reason) of each different reason, at most `limit`."""
        query = (
            "SELECT min(document), count(*), outcome, why FROM outcomes WHERE task = ? AND why != ''"
            " GROUP BY outcome, why ORDER BY min(document) LIMIT ?"
        )
        return [
            (document, count, outcome, why)
            for document, count, outcome, why in self.query(query, (task, limit))
        ]

    def count_all_outcomes(self) -> dict[str, int]:
        """Return the number of documents by outcome, over all tasks."""
        return dict(self.query("SELECT outcome, count(*) FROM main.judged GROUP BY outcome"))

    def is_finished(self) -> bool:
        """Whether the run has ended."""
        ((count,),) = self.query("SELECT count(*) FROM facts WHERE key = 'ended'")
        return bool(count)

    def count_cached_responses(self) -> tuple[int, int]:
        """Return the number of responses from the cache, and of all responses."""
        ((cached, total),) = self.query(
            "SELECT coalesce(sum(source = 'cache'), 0), count(*) FROM main.answered"
        )
        return cached, total

    def count_response_rows(self) -> int:
        """Return the number of response rows ever written, without reading them."""
        ((count,),) = self.query("SELECT coalesce(max(id) + 1, 0) FROM main.answered")
        return int(count)

    def sum_costs(self) -> tuple[float, int]:
        """Return the total cost in US dollars of responses that are not from the cache, and how many have a cost."""
        cost = "json_extract(details, '$.cost_usd')"
        ((total, count),) = self.query(
            f"SELECT sum({cost}), count({cost}) FROM answered WHERE source != 'cache'"
        )
        return total or 0.0, count

    def count_responses_over_time(self, per_second: int) -> list[tuple[int, int, int, int]]:
        """Return (time step, from the model, from the cache, from judges) for steps of 1 / `per_second` seconds."""
        query = (
            "SELECT cast(at * ? AS INTEGER) AS step, count(*) FILTER (WHERE source = 'model'),"
            " count(*) FILTER (WHERE source = 'cache'), count(*) FILTER (WHERE source = 'judge')"
            " FROM main.answered WHERE at > 0 GROUP BY step ORDER BY step"
        )
        return [
            (step, model, cache, judges) for step, model, cache, judges in self.query(query, (per_second,))
        ]

    def read_fields(self, task: str, *, limit: int) -> Iterator[str]:
        """Yield the fields (JSON) of the first documents of a task."""
        query = (
            "SELECT a.fields FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last"
            " WHERE t.name = ? ORDER BY a.id LIMIT ?"
        )
        for (fields,) in self.query(query, (task, limit)):
            yield fields

    def read_verdicts_with_field(self, task: str, field: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield (document, outcome, verdicts) in document order, and the value of a (dotted) field if one is given."""
        column = ", json_extract(a.fields, ?)" if field else ""
        query = (
            f"SELECT a.id - t.first, j.outcome, j.unchecked_verdicts{column}"
            " FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last LEFT JOIN judged j ON j.id = a.id"
            " WHERE t.name = ? ORDER BY a.id"
        )
        path = "$." + ".".join(json.dumps(part, ensure_ascii=False) for part in field.split("."))
        yield from self.query(query, (path, task) if field else (task,))

    def read_document_rows(self, *, limit: int, offset: int) -> tuple[list[int], bool]:
        """Return row ids of a page of documents in journal order, and whether there are more."""
        query = "SELECT id FROM main.asked ORDER BY id LIMIT ? OFFSET ?"
        rows = [row for (row,) in self.query(query, (limit + 1, offset))]
        return rows[:limit], len(rows) > limit

    def read_task_offsets(self) -> dict[int, str]:
        """Return the tasks by the row id of their first document."""
        return dict(self.query("SELECT first, name FROM tasks"))

    def count_failed_requests(self) -> tuple[int, int]:
        """Return the number of failed requests and of all requests. A document without a prompt counts as one."""
        ((total,),) = self.query("SELECT coalesce(sum(count), 0) FROM main.asked")
        ((not_rendered,),) = self.query(
            "SELECT count(*) FROM main.judged j LEFT JOIN main.asked a ON a.id = j.id"
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

    def read_estimates(self) -> list[Estimate]:
        """Return the estimates of a finished run."""
        with self.report_decode_errors():
            return [
                rows.decode_estimate(content) for (content,) in self.query("SELECT content FROM estimates")
            ]

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table or view."""
        if table not in _COUNTABLE_TABLES:
            raise ValueError(table)
        ((number,),) = self.query(f"SELECT count(*) FROM main.{table}")
        return int(number)

    def query(self, statement: str, arguments: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a SELECT, for use inside `assay.store` and in tests.

        Raises:
            CorruptStore: The file is damaged.
        """
        if self._verifier is None:  # the tables of an older version, without the views
            statement = statement.replace(UNCHECKED, "")
        try:
            yield from self._reader.execute(statement, arguments)
        except sqlite3.ProgrammingError:
            raise  # a programming error, not damage
        except sqlite3.DatabaseError as error:
            damage = self._verifier.damage if self._verifier is not None else ""
            raise build_damage_error(self.path, damage or error) from None

    @contextmanager
    def report_decode_errors(self) -> Iterator[None]:
        """Raise decoding errors inside the `with` block as damage of the journal."""
        try:
            yield
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise build_damage_error(self.path, error) from None


def _build_settings_row(key: str, settings: Settings) -> tuple[Any, ...]:
    return rows.add_checksum((f"settings:{key}", json.dumps(dict(settings.values), default=str)))
