"""All details of one document of a run, or summaries of several."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.records.agents import AgentEvent
from assay.core.records.responses import Response
from assay.store.journal import rows
from assay.store.journal.journal import Journal
from assay.store.journal.token_rows import SELECT_TOKENS, attach_tokens

__all__ = [
    "DocumentRecord",
    "DocumentSummary",
    "JudgeExchange",
    "RequestRecord",
    "read_document",
    "read_document_summaries",
    "scan_response_rows",
]

RowFinder = Callable[[Sequence[str]], list[int]]
"""Maps fingerprints to rows of the journal that may contain their responses."""

_SELECT_DOCUMENT = """
SELECT t.first, a.fields, a.target, a.requests, j.outcome, j.why, j.answers, j.verdicts
FROM tasks t LEFT JOIN asked a ON a.id = t.first + ? LEFT JOIN judged j ON j.id = t.first + ?
WHERE t.name = ? AND (a.id IS NOT NULL OR j.id IS NOT NULL)
"""
_SELECT_SUMMARIES = """
SELECT i.value, a.target, a.requests, a.fields, j.answers, j.outcome, j.why
FROM json_each(?) i LEFT JOIN asked a ON a.id = i.value LEFT JOIN judged j ON j.id = i.value
"""
_SELECT_JUDGE_REQUESTS = """
SELECT judge, fingerprint, number, repeat, prompt, settings FROM judge_requests
WHERE task = ? AND document = ? ORDER BY judge, number, repeat
"""
_SELECT_FAILURES = (
    "SELECT fingerprint, kind, message, attempts, at FROM failures WHERE fingerprint IN ({}) ORDER BY at"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request and its outcome."""

    number: int
    repeat: int
    kind: str
    """likelihood | generate | rolling"""

    prompt: int
    """Index of its prompt among those of the document."""

    continuation: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """`tools` and `response_format` as JSON, if the request has them."""

    response: Response | None = None
    source: str = ""
    """model | judge | cache"""

    failures: tuple[tuple[str, str, int], ...] = ()
    """(kind, message, attempts) of failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeExchange:
    """A judge request about a document and its reply."""

    judge: str
    repeat: int
    prompt: str
    reply: Response | None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRecord:
    """Everything the journal contains about one document."""

    task: str
    position: int
    id: int
    outcome: str
    why: str
    fields: dict[str, Any]
    target: Any
    prompts: list[str]
    asked: list[RequestRecord]
    answers: dict[str, list[Any]]
    verdicts: list[tuple[str, str, str, Any, str]]
    """(pipeline, metric, kind, value, why)"""

    judges: list[JudgeExchange]
    steps: dict[str, list[list[Any]]] = field(default_factory=dict)
    """Pipeline -> output of each filter for each request, if stored."""

    agents: dict[int, list[AgentEvent]] = field(default_factory=dict)
    """Repeat -> the events of its agent, for agent tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSummary:
    """Summary of one document."""

    id: int
    prompt: str
    fields: dict[str, Any]
    target: Any
    answers: dict[str, list[Any]]
    outcome: str
    why: str


def read_document(
    journal: Journal, task: str, position: int, find: RowFinder | None = None
) -> DocumentRecord | None:
    """Return a document by task and index, or None if there is no such document."""
    if position >= 2**62:  # SQLite has no larger integers
        return None
    with journal.report_decode_errors():
        for first, fields, target, requests, outcome, why, answers, verdicts in journal.query(
            _SELECT_DOCUMENT, (position, position, task)
        ):
            content = json.loads(requests) if requests else {"prompts": [], "requests": []}
            judges = list(journal.query(_SELECT_JUDGE_REQUESTS, (task, position)))
            names = [request[5] for request in content["requests"]] + [judge[1] for judge in judges]
            known = _find_responses(journal, names, find)
            settings = _read_settings(
                journal, {request[4] for request in content["requests"]} | {judge[5] for judge in judges}
            )
            failed = _read_failures(journal, [name for name in names if name not in known])
            return DocumentRecord(
                task=task,
                position=position,
                id=first + position,
                outcome=outcome or "open",
                why=why or "",
                fields=json.loads(fields) if fields else {},
                target=json.loads(target)["target"] if target else None,
                prompts=content["prompts"],
                asked=[
                    _build_request(request, content, known, settings, failed)
                    for request in content["requests"]
                ],
                answers=json.loads(answers) if answers else {},
                verdicts=[
                    (pipeline, metric, kind, rows.decode_verdict_value(value), reason)
                    for pipeline, metric, kind, value, reason in (json.loads(verdicts) if verdicts else ())
                ],
                steps=_read_filter_steps(journal, first + position),
                judges=[
                    JudgeExchange(
                        judge=judge,
                        repeat=repeat,
                        prompt=prompt,
                        reply=known[name][0] if name in known else None,
                        settings=settings.get(digest, {}),
                    )
                    for judge, name, _, repeat, prompt, digest in judges
                ],
                agents=journal.read_agent_events(task, position),
            )
    return None


def read_document_summaries(journal: Journal, ids: Sequence[int]) -> list[DocumentSummary]:
    """Return summaries of documents by row id, in the given order."""
    with journal.report_decode_errors():
        found = {
            number: DocumentSummary(
                id=number,
                prompt=_first_prompt(requests),
                fields=json.loads(fields) if fields else {},
                target=json.loads(target)["target"] if target else None,
                answers=json.loads(answers) if answers else {},
                outcome=outcome or "open",
                why=why or "",
            )
            for number, target, requests, fields, answers, outcome, why in journal.query(
                _SELECT_SUMMARIES, (json.dumps(list(ids)),)
            )
        }
    return [found[number] for number in ids if number in found]


def _first_prompt(requests: str | None) -> str:
    prompts = json.loads(requests)["prompts"] if requests else []
    return str(prompts[0]) if prompts else ""


def _build_request(
    request: list[Any],
    content: dict[str, Any],
    known: dict[str, tuple[Response, str]],
    settings: dict[str, dict[str, Any]],
    failed: dict[str, list[tuple[str, str, int]]],
) -> RequestRecord:
    number, repeat, kind, prompt, argument, fingerprint, *_ = request
    response, source = known.get(fingerprint, (None, ""))
    return RequestRecord(
        number=number,
        repeat=repeat,
        kind=kind,
        prompt=prompt,
        continuation=argument if kind == "likelihood" else "",
        settings=settings.get(argument, {}) if kind == "generate" else {},
        options=rows.get_request_options(content, request),
        response=response,
        source=source,
        failures=tuple(failed.get(fingerprint, ())),
    )


def scan_response_rows(journal: Journal, fingerprints: Sequence[str]) -> list[int]:
    """Return the rows of some responses by reading the whole table, for one document of a run without an index.

    That takes a tenth of a second per million responses, a tenth of the time that it takes to index them.
    """
    select = "SELECT id FROM main.answered WHERE fingerprint IN (SELECT value FROM json_each(?))"
    return [row for (row,) in journal.query(select, (json.dumps(list(fingerprints)),))]


def _find_responses(
    journal: Journal, names: Sequence[str], find: RowFinder | None
) -> dict[str, tuple[Response, str]]:
    """Return (response, source) by fingerprint."""
    if find is None:
        return {name: (response, "") for name, response in journal.find(names, tokens=True).items()}
    numbers = find(names)
    wanted = set(names)
    found = {}
    columns = "fingerprint, text, logprob, greedy, source, at, details, NULL"
    chosen = ",".join(map(str, numbers))
    for row in journal.query(f"SELECT {columns} FROM answered WHERE id IN ({chosen})"):
        if row[0] in wanted:
            found[row[0]] = (rows.response_from_answered(row), row[4])
    responses = {name: response for name, (response, _) in found.items()}
    for name, response in attach_tokens(
        responses, journal.query(f"{SELECT_TOKENS} WHERE id IN ({chosen})")
    ).items():
        found[name] = (response, found[name][1])
    return found


def _read_filter_steps(journal: Journal, row: int) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for (content,) in journal.query("SELECT content FROM filter_steps WHERE id = ?", (row,)):
        found = json.loads(content)
    return found


def _read_settings(journal: Journal, digests: set[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for digest in digests:
        for (value,) in journal.query("SELECT value FROM facts WHERE key = ?", (f"settings:{digest}",)):
            found[digest] = json.loads(value)
    return found


def _read_failures(journal: Journal, names: Sequence[str]) -> dict[str, list[tuple[str, str, int]]]:
    if not names:
        return {}
    found: dict[str, list[tuple[str, str, int]]] = {}
    marks = ",".join("?" * len(names))
    for name, kind, message, attempts, _ in journal.query(_SELECT_FAILURES.format(marks), list(names)):
        found.setdefault(name, []).append((kind, message, attempts))
    return found
