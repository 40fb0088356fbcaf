"""Replay of task records made by lm-evaluation-harness: requests, filtered responses, metrics, results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.documents import Document
from assay.core.errors import BadData
from assay.core.requests import Request
from assay.core.responses import LogProbability, Outcome, Response
from assay.core.specs import TaskSpec
from assay.core.verdicts import Estimate, Evidence, Score, Unscored
from assay.engine.judging.documents import Judged, OpenDocument, judge
from assay.engine.planning.plan import PlannedTask, check_functions
from assay.engine.results.summary import estimate_task
from assay.scoring.scorer import Scorer
from assay.tasks.load import task_from_config
from assay.tasks.task import Rendering, open_task
from assay.tasks.yaml_reader import read_task_file
from assay.testing.oracle.checks import Checks
from assay.testing.oracle.compare import difference
from assay.testing.oracle.corpus import plain_documents
from assay.testing.oracle.shown import facts_of, results_of, samples_of, shown_requests

__all__ = ["Replayed", "datasets_of", "replay_record", "replay_task", "tasks_folder"]

Splits = Mapping[str, Any]
Respond = Callable[[Mapping[str, Any]], Sequence[Any]]

_SAMPLE_KEYS = ("filtered_resps", "metrics", "target", "doc_hash", "prompt_hash", "target_hash")


@dataclass(slots=True)
class Replayed:
    """A task done again on recorded documents and responses."""

    planned: PlannedTask
    asked: list[tuple[Document, tuple[Request, ...]]]
    judged: Judged
    estimates: list[Estimate]


def tasks_folder(root: Path, package: str = "lm_eval") -> Path:
    """The folder YAML paths are relative to: given itself, or a checkout or package that holds it."""
    for candidate in (root / package / "tasks", root / "tasks", root):
        if candidate.is_dir():
            return candidate
    return root


def datasets_of(recorded: Mapping[str, list[Any]]) -> Splits:
    """Recorded splits as the `datasets` library would have loaded them."""
    import datasets

    return {name: datasets.Dataset.from_list(plain_documents(rows)) for name, rows in recorded.items()}


def replay_record(
    record: Mapping[str, Any], root: Path, splits: Callable[[], Splits], number: int = 0
) -> Checks:
    """Do a recorded task again and compare. Whatever fails is a difference, not the end."""
    checks = Checks(task=record["task"], variant=record.get("variant", "default"), number=number)
    if record.get("uses_global_rng"):
        checks.excluded = "uses a global random state"
    try:
        _compare(record, root, splits(), checks)
    except Exception as error:  # noqa: BLE001 - helper code of any task runs here
        checks.spoil(f"{type(error).__name__}: {error}")
    return checks


def _compare(record: Mapping[str, Any], root: Path, splits: Splits, checks: Checks) -> None:
    path = root / record["yaml_relpath"]
    seed()
    planned = prepare(
        task_from_config(read_task_file(path), {"task": record["task"]}), rendering_of(record), splits
    )
    asked = list(planned.task.render())
    shown = [one for document, requests in asked for one in shown_requests(planned, document, requests)]
    recorded = _recorded_requests(record["requests"])
    checks.requests = difference(
        [{key: one[key] for key in other} for one, other in zip(shown, recorded, strict=False)]
        if len(shown) == len(recorded)
        else shown,
        recorded,
    )
    if checks.requests:
        checks.metrics = checks.results = "requests differ"
        return
    keys = iter(request["key"] for request in record["requests"])
    replayed = replay_task(
        planned, asked, lambda _: record["responses"][next(keys)], iterations=record.get("bootstrap_iters", 0)
    )
    if record.get("samples") is not None:
        prompts = {one["doc_id"]: str(one["args"][0]) for one in reversed(shown)}
        documents = [document for document, _ in asked]
        samples = samples_of(planned, replayed.judged, documents, prompts)
        checks.metrics = difference(*_comparable(samples, record["samples"]))
    if record.get("results") is not None:
        checks.results = _compare_results(record, replayed)


def _recorded_requests(recorded: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is compared of each request. Class tasks may number two alike; then their place is compared."""
    kept = [
        {key: one[key] for key in ("type", "args", "doc_id", "idx", "repeats") if key in one}
        for one in recorded
    ]
    places: dict[Any, int] = {}
    numbers = [(one.get("doc_id"), one.get("idx")) for one in kept]
    if len(set(numbers)) < len(numbers):
        for one in kept:
            one["idx"] = places.get(one.get("doc_id"), 0)
            places[one.get("doc_id")] = one["idx"] + 1
    return kept


def _comparable(
    ours: list[dict[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> tuple[list[Any], list[Any]]:
    """Both lists of samples with the keys the record has; a null hash was not recorded."""
    recorded = sorted(theirs, key=lambda row: (row["filter"], row["doc_id"]))
    keys = ("filter", "doc_id", *_SAMPLE_KEYS)
    kept = [
        {key: row[key] for key in keys if key in row and not (key.endswith("_hash") and row[key] is None)}
        for row in recorded
    ]
    if len(ours) != len(kept):
        return list(ours), kept
    return [{key: one[key] for key in row} for one, row in zip(ours, kept, strict=True)], kept


def _compare_results(record: Mapping[str, Any], replayed: Replayed) -> str | None:
    numbers = {key: value for key, value in record["results"].items() if "," in key}
    facts = facts_of(replayed.planned)
    recorded = {
        key: record[key] for key in ("n_shot", "version", "higher_is_better", "n_samples") if key in record
    }
    recorded |= {
        key: record["results"][key] for key in ("alias", "name", "sample_len") if key in record["results"]
    }
    return difference(results_of(replayed.estimates), numbers) or difference(
        {key: facts[key] for key in recorded}, recorded
    )


def seed() -> None:
    """The global random states as the harness leaves them before a task."""
    import numpy

    random.seed(0)
    numpy.random.seed(1234)


def prepare(spec: TaskSpec, rendering: Rendering, splits: Splits) -> PlannedTask:
    """A task on recorded documents."""
    check_functions(spec)
    task = open_task(spec, rendering, splits)
    return PlannedTask(task=task, scorer=Scorer.of(task.spec), documents=len(task), digest="")


def rendering_of(record: Mapping[str, Any]) -> Rendering:
    """The arguments a record was made with."""
    return Rendering(
        num_fewshot=record.get("num_fewshot_arg"),
        chat=bool(record.get("chat")),
        multiturn=bool(record.get("fewshot_as_multiturn")),
        system_instruction=record.get("system_instruction"),
        limit=record.get("limit"),
    )


def replay_task(
    planned: PlannedTask,
    asked: list[tuple[Document, tuple[Request, ...]]],
    respond: Respond,
    *,
    iterations: int,
) -> Replayed:
    """Answer every request from the record, judge, sum up. `respond` is asked once per request, in order."""
    opened = [_opened(planned, document, requests, respond) for document, requests in asked]
    judged = judge(planned, opened)
    estimates = estimate_task(planned, _verdict_rows(judged), iterations=iterations)
    return Replayed(planned, asked, judged, estimates)


def _opened(
    planned: PlannedTask, document: Document, requests: tuple[Request, ...], respond: Respond
) -> OpenDocument:
    outcomes: list[Outcome | None] = []
    known: Sequence[Any] = ()
    shown = iter(shown_requests(planned, document, requests))
    for request in requests:
        if request.repeat == 0:
            known = respond(next(shown))
            if not known:
                raise BadData(f"document {document.index} has a request without a recorded response")
        outcomes.append(Response(request_id=request.id, value=_value(known[request.repeat % len(known)])))
    return OpenDocument(document, requests, (), outcomes, 0)


def _value(recorded: Any) -> str | LogProbability:
    if isinstance(recorded, list):
        return LogProbability(recorded[0], bool(recorded[1]))
    return recorded if isinstance(recorded, str) else LogProbability(recorded)


def _verdict_rows(judged: Judged) -> Iterator[tuple[str, str, int, str, Any]]:
    """Verdicts as the journal would give them."""
    rows: list[tuple[str, str, int, str, Any]] = []
    for verdict in judged.verdicts:
        match verdict:
            case Score(value=value) | Evidence(value=value):
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "score", value))
            case Unscored():
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "unscored", None))
    return iter(sorted(rows, key=lambda row: (row[0], row[1], row[2])))
