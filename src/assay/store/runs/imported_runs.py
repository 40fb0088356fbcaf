"""Writes runs of other harnesses as run folders: documents, prompts, responses, answers, scores and estimates.

Information that the imported files do not contain stays unknown. Imported responses have an identity of their own, so
they are never reused for requests of Assay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from assay.core.fingerprints import digest_json
from assay.core.records.documents import Document
from assay.core.records.requests import Request, compute_fingerprint
from assay.core.records.responses import LogProbability, Response, Usage
from assay.core.records.verdicts import Answer, Estimate, Evidence, Score, Unscored, Verdict
from assay.store.journal.journal import JOURNAL_FILE, Journal

__all__ = ["ImportedDocument", "ImportedRun", "write_imported_run"]

_BATCH_SIZE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument:
    """One document of an imported run."""

    index: int
    fields: Mapping[str, Any]
    target: Any
    requests: Sequence[Request]
    values: Sequence[str | LogProbability | None]
    """The response to each request; None if unknown."""

    usages: Sequence[Usage | None]
    answers: Mapping[str, Any]
    """By filter pipeline."""

    scores: Mapping[tuple[str, str], Any]
    """By (pipeline, metric)."""


class ImportedRun(Protocol):
    """A run of another harness, as read from its files."""

    @property
    def model(self) -> str: ...

    @property
    def identity(self) -> Mapping[str, str]:
        """What distinguishes it from other runs: the harness and the files."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts of the run: `spec`, `tasks`, `groups`, `top`, `started`, …"""
        ...

    def documents(self, task: str) -> Iterator[ImportedDocument]:
        """Yield the documents of a task in index order."""
        ...


@dataclass(slots=True)
class _Batch:
    """Rows that are written in one transaction."""

    asked: list[tuple[Document, Any, Sequence[Request], Sequence[str]]] = field(default_factory=list)
    responses: list[tuple[str, Response]] = field(default_factory=list)
    outcomes: list[tuple[int, str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def write_imported_run(folder: Path, run: ImportedRun, estimates: Sequence[Estimate]) -> None:
    """Write an imported run as a run folder. It is renamed at the end, so that no partial run is visible."""
    temporary = folder.with_name(f".{folder.name}.importing")
    _remove(temporary)
    journal = Journal.open_for_writing(temporary)
    try:
        digest = digest_json(dict(run.identity))
        for task in run.about["tasks"]:
            documents = run.documents(task)
            while some := list(islice(documents, _BATCH_SIZE)):
                _write(journal, task, some, digest)
        journal.add_estimates(estimates).result()
        journal.set_facts(
            {**run.about, "identity": dict(run.identity), "model": run.model, "imported": time.time()}
        ).result()
    finally:
        journal.close()
    temporary.rename(folder)


def _remove(folder: Path) -> None:
    """Delete the files of an interrupted import."""
    for file in folder.glob("*") if (folder / JOURNAL_FILE).exists() else ():
        file.unlink()
    if folder.exists():
        folder.rmdir()


def _write(journal: Journal, task: str, documents: Sequence[ImportedDocument], digest: str) -> None:
    batch = _Batch()
    for document in documents:
        _add(batch, task, document, digest)
    journal.add_documents(batch.asked)
    journal.add_responses(batch.responses, source="import")
    journal.add_judged(task, batch.outcomes, batch.answers, batch.verdicts).result()


def _add(batch: _Batch, task: str, document: ImportedDocument, digest: str) -> None:
    names = [compute_fingerprint(digest, request.id) for request in document.requests]
    known = Document(task=task, index=document.index, fields=document.fields)
    batch.asked.append((known, document.target, document.requests, names))
    for name, request, value, usage in zip(
        names, document.requests, document.values, document.usages, strict=True
    ):
        if value is not None:
            batch.responses.append((name, Response(request_id=request.id, value=value, usage=usage)))
    for pipeline, answer in document.answers.items():
        values = tuple(answer) if isinstance(answer, list) else (answer,)
        batch.answers.append(Answer(document=document.index, pipeline=pipeline, values=values))
    verdicts = [_verdict(document.index, *key, value) for key, value in document.scores.items()]
    batch.verdicts += verdicts
    scored = not verdicts or not all(isinstance(verdict, Unscored) for verdict in verdicts)
    batch.outcomes.append((document.index, "scored" if scored else "unparsed", ""))


def _verdict(document: int, pipeline: str, metric: str, value: Any) -> Verdict:
    if value is None:
        return Unscored(document=document, metric=metric, pipeline=pipeline, why="the files contain no score")
    if isinstance(value, (bool, int, float)) and value == value:
        return Score(document=document, metric=metric, pipeline=pipeline, value=float(value))
    return Evidence(document=document, metric=metric, pipeline=pipeline, value=value)
