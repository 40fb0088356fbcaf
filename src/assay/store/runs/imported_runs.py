"""Writes results of other programs as run folders: documents, prompts, responses, answers, scores and estimates.

Information that the imported files do not contain stays unknown: a task without documents is stored with its estimates only.
Imported responses have an identity of their own, so they are never reused for requests of Assay.
"""

from __future__ import annotations

import glob
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.fingerprints import digest_json
from assay.core.options.run_spec import RunSpec
from assay.core.records.codec import to_plain
from assay.core.records.documents import Document
from assay.core.records.endings import Ending
from assay.core.records.requests import Request, compute_fingerprint
from assay.core.records.responses import Failure, Response
from assay.core.records.verdicts import Answer, Estimate, Evidence, RepeatScores, Score, Unscored, Verdict
from assay.core.secrets import redact_fields
from assay.stats.intervals.repeats import RepeatTable, summarise_repeats
from assay.store.database.locks import is_locked
from assay.store.database.tables import MAX_DOCUMENTS_PER_TASK
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.store.runs.media_files import detect_content_type, write_media

__all__ = ["ImportedDocument", "ImportedRun", "ImportedTask", "TaskScores", "write_imported_run"]

_BATCH_SIZE = 256
_MAX_SCORE = 1e100
"""Larger numbers have no finite variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument:
    """One document of an imported run."""

    index: int
    """The number of the document, unique in its task."""

    fields: Mapping[str, Any]
    """The fields of the dataset row, as far as the files contain them. Documents of two runs are paired by their fields."""

    target: Any = ""
    requests: Sequence[Request] = ()
    outcomes: Sequence[Response | Failure | None] = ()
    """The response to each request, or its error; None if unknown."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    """By filter pipeline; a list has one value per request."""

    scores: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    """By (pipeline, metric); None if the document has no score."""

    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By (pipeline, metric): why a document got its score, or none. Explanations of judges go here."""

    repeats: Sequence[RepeatScores] = ()
    """The scores of each repeat, if the files contain them."""

    media: Mapping[str, bytes] = field(default_factory=dict)
    """By digest: images, audio and videos of the prompts, if the files contain them."""

    ending: Ending | None = None
    """How the document ended, if the files say so; by default derived from scores and failures."""

    why: str = ""
    """The error of a document that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTask:
    """One task of an imported run."""

    read_documents: Callable[[], Iterable[ImportedDocument]] | None = None
    """Reads the documents in index order; None if the files contain aggregate scores only."""

    alias: str = ""
    output_type: str = ""
    version: Any = ""
    n_shot: int | None = None
    original: int | None = None
    """The number of documents of the dataset; None if unknown."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the task with the keys of a task file, as far as they are known."""

    higher_is_better: Mapping[str, bool] = field(default_factory=dict)
    """By metric."""

    computed: Collection[str] = ()
    """Metrics of the documents whose means are computed although the files report other metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A run of another program, as read from its files."""

    program: str
    """The program that wrote the files: `lm-eval`, `helm`, …"""

    model: str
    identity: Mapping[str, str]
    """What distinguishes it from other runs: the program and the checksum of the files."""

    tasks: Mapping[str, ImportedTask]
    estimates: Sequence[Estimate] = ()
    """The aggregate scores that the files report. Without any, they are computed from the scores of the documents."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    """Options of the run that are known, by the names of `RunSpec`: `model`, `model_args`, `limit`, …"""

    groups: Mapping[str, Any] = field(default_factory=dict)
    """Facts about groups: `alias`, `members`, `version`, `n_shot`, `higher_is_better`."""

    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts of the run."""

    notes: Sequence[str] = ()
    """What a reader of the results must know, such as parts of the files that were left out."""


@dataclass(slots=True)
class TaskScores:
    """The scores of the documents of one task, collected while they are written."""

    columns: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    """By (pipeline, metric): a value per document; None without a score."""

    clusters: list[Any] = field(default_factory=list)
    """The field that `cluster_key` names, of each document."""

    indices: list[int] = field(default_factory=list)
    has_repeats: bool = False
    failed: int = 0
    """Documents that failed and have no score."""

    @property
    def documents(self) -> int:
        return len(self.indices)

    def add(self, document: ImportedDocument, cluster_key: str) -> None:
        for key, value in document.scores.items():
            column = self.columns.setdefault(key, [])
            column.extend([None] * (self.documents - len(column)))
            column.append(value if _is_usable(value) else None)
        self.indices.append(document.index)
        self.has_repeats = self.has_repeats or bool(document.repeats)
        has_score = any(_is_usable(value) for value in document.scores.values())
        if not has_score and _find_ending(document, [])[0] == "failed":
            self.failed += 1
        cluster: Any = document.fields if cluster_key else None
        for part in cluster_key.split("."):
            cluster = cluster.get(part) if isinstance(cluster, Mapping) else None
        self.clusters.append(cluster)

    def pad(self) -> None:
        for column in self.columns.values():
            column.extend([None] * (self.documents - len(column)))


ComputeEstimates = Callable[[ImportedRun, Mapping[str, TaskScores]], Sequence[Estimate]]


@dataclass(slots=True)
class _Batch:
    """Rows that are written in one transaction."""

    asked: list[tuple[Document, Any, Sequence[Request], Sequence[str]]] = field(default_factory=list)
    responses: list[tuple[str, Response]] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)
    outcomes: list[tuple[int, str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    repeats: list[RepeatScores] = field(default_factory=list)


def write_imported_run(folder: Path, run: ImportedRun, compute_estimates: ComputeEstimates) -> None:
    """Write an imported run as a run folder. It is renamed at the end, so that no partial run is visible."""
    for interrupted in folder.parent.glob(f".{glob.escape(folder.name)}.*.importing"):
        _remove(interrupted)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}-{threading.get_ident()}.importing")
    journal = Journal.open_for_writing(temporary)
    try:
        digest = digest_json(dict(run.identity))
        scores = {
            task: _write_task(journal, temporary, task, facts, digest) for task, facts in run.tasks.items()
        }
        estimates = compute_estimates(run, scores)
        journal.add_estimates(estimates).result()
        facts = _build_facts(run, scores, estimates)
        if repeats := _summarise_repeats(journal, scores):
            facts["repeats"] = repeats
        journal.set_facts(facts).result()
    except BaseException:
        journal.close()
        _remove(temporary)
        raise
    journal.close()
    try:
        temporary.rename(folder)
    except OSError:
        _remove(temporary)
        if not (folder / JOURNAL_FILE).is_file():  # else another process imported the same files
            raise


def _remove(folder: Path) -> None:
    """Delete the files of an interrupted import, but not those of an import in progress."""
    if not is_locked(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _build_facts(
    run: ImportedRun, scores: Mapping[str, TaskScores], estimates: Sequence[Estimate]
) -> dict[str, Any]:
    inside = {member for group in run.groups.values() for member in group["members"]}
    spec: dict[str, Any] = to_plain(asdict(RunSpec()))
    known = {"model": run.model, "tasks": list(run.tasks), **redact_fields(run.spec)}
    return {
        **redact_fields(run.facts),
        "spec": {**spec, **known},
        "top": [name for name in (*run.groups, *run.tasks) if name not in inside],
        "tasks": {
            name: _build_task_facts(name, task, scores[name], estimates) for name, task in run.tasks.items()
        },
        "groups": dict(run.groups),
        "started": run.started,
        "seconds": run.seconds,
        "ended": run.ended or 0.0,
        "identity": dict(run.identity),
        "model": run.model,
        "imported": time.time(),
        "imported_from": run.program,
        "import_notes": list(run.notes),
    }


def _summarise_repeats(journal: Journal, scores: Mapping[str, TaskScores]) -> list[dict[str, Any]]:
    facts = []
    for task, table in scores.items():
        if not table.has_repeats:
            continue
        clusters = None
        if any(name is not None for name in table.clusters):
            clusters = dict(zip(table.indices, table.clusters, strict=True))
        facts += [
            {"task": task, "pipeline": pipeline, "metric": metric, **summarise_repeats(repeats, clusters)}
            for (pipeline, metric), repeats in RepeatTable.build_tables(journal.read_repeats(task)).items()
        ]
    return facts


def _build_task_facts(
    name: str, task: ImportedTask, scores: TaskScores, estimates: Sequence[Estimate]
) -> dict[str, Any]:
    reported = [(one.pipeline, one.metric) for one in estimates if one.task == name]
    columns = [*scores.columns, *reported]
    return {
        "alias": task.alias or name,
        "path": "",
        "output_type": task.output_type,
        "version": task.version,
        "n_shot": task.n_shot,
        "documents": scores.documents,
        "original": scores.documents if task.original is None else task.original,
        "digest": "",
        "metrics": list(dict.fromkeys(metric for _, metric in columns)),
        "pipelines": list(dict.fromkeys(pipeline for pipeline, _ in columns)),
        "config": {
            key: redact_fields(value) if key == "metadata" else value for key, value in task.config.items()
        },  # lm-eval adds the arguments of the model to the metadata
        "aggregates_only": task.read_documents is None,
    }


def _write_task(journal: Journal, folder: Path, task: str, facts: ImportedTask, digest: str) -> TaskScores:
    scores = TaskScores()
    cluster_key = str(facts.config.get("cluster_key") or "")
    documents = iter(() if facts.read_documents is None else facts.read_documents())
    last = -1
    while some := list(islice(documents, _BATCH_SIZE)):
        for document in some:
            _check_index(task, document.index, last)
            last = document.index
            scores.add(document, cluster_key)
            for name, content in document.media.items():
                if detect_content_type(content[:32]):  # only what a browser shows and does not execute
                    write_media(folder, name, content)
        _write(journal, task, some, digest)
    scores.pad()
    return scores


def _check_index(task: str, index: Any, last: int) -> None:
    if not isinstance(index, int) or not 0 <= index < MAX_DOCUMENTS_PER_TASK:
        raise DatasetError(f"`{task}` has a document with the invalid number `{str(index)[:40]}`")
    if index <= last:
        raise DatasetError(f"`{task}` has two documents with the number {index}")


def _write(journal: Journal, task: str, documents: Sequence[ImportedDocument], digest: str) -> None:
    batch = _Batch()
    for document in documents:
        _add(batch, task, document, digest)
    journal.add_documents(batch.asked)
    journal.add_responses(batch.responses, source="import")
    journal.add_failures(batch.failures)
    journal.add_judged(task, batch.outcomes, batch.answers, batch.verdicts, batch.repeats).result()


def _add(batch: _Batch, task: str, document: ImportedDocument, digest: str) -> None:
    names = [
        compute_fingerprint(digest, digest_json([task, document.index, request.index, request.id]))
        for request in document.requests
    ]  # files rarely contain the media of a prompt, so that equal prompts can have different responses
    known = Document(task=task, index=document.index, fields=document.fields)
    batch.asked.append((known, document.target, document.requests, names))
    for name, outcome in zip(names, document.outcomes, strict=True):
        if isinstance(outcome, Response):
            batch.responses.append((name, outcome))
        elif outcome is not None:
            batch.failures.append((name, outcome))
    for pipeline, answer in document.answers.items():
        values = tuple(answer) if isinstance(answer, list) else (answer,)
        batch.answers.append(Answer(document=document.index, pipeline=pipeline, values=values))
    verdicts = [
        _build_verdict(document.index, *key, value, document.reasons.get(key, ""))
        for key, value in document.scores.items()
    ]
    batch.verdicts += verdicts
    batch.repeats += [
        one
        for one in document.repeats
        if all(_is_usable(score) for scores in one.scores.values() for score in scores)
    ]
    batch.outcomes.append((document.index, *_find_ending(document, verdicts)))


def _find_ending(document: ImportedDocument, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    if document.ending is not None:
        return document.ending, document.why
    has_score = any(not isinstance(verdict, Unscored) for verdict in verdicts)
    failed = next((one for one in document.outcomes if isinstance(one, Failure)), None)
    if failed is not None and not has_score:
        return "failed", document.why or failed.message
    return "scored" if has_score or not verdicts else "unparsed", document.why


def _is_usable(value: Any) -> bool:
    """Whether a value is a score or the input of a corpus metric; undefined, infinite and absurd numbers are neither."""
    if isinstance(value, (int, float)):
        return abs(value) < _MAX_SCORE
    return value is not None


def _build_verdict(document: int, pipeline: str, metric: str, value: Any, why: str) -> Verdict:
    if not _is_usable(value):
        missing = "the files contain no score" if value is None else f"the score in the files is {value}"
        return Unscored(document=document, metric=metric, pipeline=pipeline, why=why or missing)
    if isinstance(value, (bool, int, float)):
        return Score(document=document, metric=metric, pipeline=pipeline, value=float(value), why=why)
    return Evidence(document=document, metric=metric, pipeline=pipeline, value=value)
