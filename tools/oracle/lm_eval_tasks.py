"""Replay task records of lm_eval: requests, filtered responses, metrics and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.documents import Document
from assay.core.records.requests import Request
from assay.core.records.responses import LogProbability, Outcome, Response
from assay.core.records.specs import TaskSpec
from assay.core.records.verdicts import Estimate, Evidence, Score, Unscored
from assay.engine.judging.documents import judge_documents
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.plan import check_functions
from assay.engine.planning.records import PlannedTask
from assay.engine.results.summary import estimate_task
from assay.scoring.scorer import Scorer
from assay.tasks.files.task_loader import task_from_config
from assay.tasks.files.yaml_reader import read_task_file
from assay.tasks.task import RenderingOptions, open_task
from assay.user_code.random_state import LOOKUPS_BEFORE_PROMPTS, draw_names, seed_global_generators
from tools.oracle.checks import RecordChecks
from tools.oracle.comparison import find_difference
from tools.oracle.lm_eval_format import collect_facts, format_requests, format_results, format_samples
from tools.oracle.lm_eval_values import decode_documents

__all__ = ["TaskReplay", "build_datasets", "find_tasks_folder", "replay_record", "replay_task"]

Splits = Mapping[str, Any]
Respond = Callable[[Mapping[str, Any]], Sequence[Any]]

_SAMPLE_KEYS = ("filtered_resps", "metrics", "target", "doc_hash", "prompt_hash", "target_hash")


@dataclass(slots=True)
class TaskReplay:
    """A task repeated on recorded documents and responses."""

    planned: PlannedTask
    rendered: list[tuple[Document, tuple[Request, ...]]]
    judged: JudgedBatch
    estimates: list[Estimate]


def find_tasks_folder(root: Path, package: str = "lm_eval") -> Path:
    """Return the folder YAML paths are relative to: `root` itself, or the task folder of a checkout or package."""
    for candidate in (root / package / "tasks", root / "tasks", root):
        if candidate.is_dir():
            return candidate
    return root


def build_datasets(recorded: Mapping[str, list[Any]]) -> Splits:
    """Build recorded splits as the `datasets` library would load them."""
    import datasets

    return {name: datasets.Dataset.from_list(decode_documents(rows)) for name, rows in recorded.items()}


def replay_record(
    record: Mapping[str, Any], root: Path, splits: Callable[[], Splits], number: int = 0
) -> RecordChecks:
    """Repeat a recorded task and compare. An exception counts as a difference."""
    checks = RecordChecks(task=record["task"], variant=record.get("variant", "default"), number=number)
    if record.get("uses_global_rng"):
        checks.excluded = "uses a global random state"
    try:
        _compare(record, root, splits(), checks)
    except Exception as error:  # noqa: BLE001 - helper code of any task runs here
        checks.fail_remaining(f"{type(error).__name__}: {error}")
    return checks


def _compare(record: Mapping[str, Any], root: Path, splits: Splits, checks: RecordChecks) -> None:
    path = root / record["yaml_relpath"]
    seed_generators()
    planned = prepare_task(
        task_from_config(read_task_file(path), {"task": record["task"]}),
        rendering_from_record(record),
        splits,
    )
    rendered = list(planned.task.render())
    formatted = [
        one for document, requests in rendered for one in format_requests(planned, document, requests)
    ]
    recorded = _select_request_keys(record["requests"])
    checks.requests = find_difference(
        [{key: one[key] for key in other} for one, other in zip(formatted, recorded, strict=False)]
        if len(formatted) == len(recorded)
        else formatted,
        recorded,
    )
    if checks.requests:
        checks.metrics = checks.results = "requests differ"
        return
    keys = iter(request["key"] for request in record["requests"])
    replayed = replay_task(
        planned,
        rendered,
        lambda _: record["responses"][next(keys)],
        iterations=record.get("bootstrap_iters", 0),
    )
    if record.get("samples") is not None:
        prompts = {one["doc_id"]: str(one["args"][0]) for one in reversed(formatted)}
        documents = [document for document, _ in rendered]
        samples = format_samples(planned, replayed.judged, documents, prompts)
        checks.metrics = find_difference(*_align_samples(samples, record["samples"]))
    if record.get("results") is not None:
        checks.results = _compare_results(record, replayed)


def _select_request_keys(recorded: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the compared keys of each request. If indices repeat, as in class tasks, use the position instead."""
    selected = [
        {key: one[key] for key in ("type", "args", "doc_id", "idx", "repeats") if key in one}
        for one in recorded
    ]
    next_index: dict[Any, int] = {}
    numbers = [(one.get("doc_id"), one.get("idx")) for one in selected]
    if len(set(numbers)) < len(numbers):
        for one in selected:
            one["idx"] = next_index.get(one.get("doc_id"), 0)
            next_index[one.get("doc_id")] = one["idx"] + 1
    return selected


def _align_samples(
    ours: list[dict[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> tuple[list[Any], list[Any]]:
    """Reduce both lists of samples to the recorded keys; a null hash was not recorded."""
    recorded = sorted(theirs, key=lambda row: (row["filter"], row["doc_id"]))
    keys = ("filter", "doc_id", *_SAMPLE_KEYS)
    selected = [
        {key: row[key] for key in keys if key in row and not (key.endswith("_hash") and row[key] is None)}
        for row in recorded
    ]
    if len(ours) != len(selected):
        return list(ours), selected
    return [{key: one[key] for key in row} for one, row in zip(ours, selected, strict=True)], selected


def _compare_results(record: Mapping[str, Any], replayed: TaskReplay) -> str | None:
    numbers = {key: value for key, value in record["results"].items() if "," in key}
    facts = collect_facts(replayed.planned)
    recorded = {
        key: record[key] for key in ("n_shot", "version", "higher_is_better", "n_samples") if key in record
    }
    recorded |= {
        key: record["results"][key] for key in ("alias", "name", "sample_len") if key in record["results"]
    }
    return find_difference(format_results(replayed.estimates), numbers) or find_difference(
        {key: facts[key] for key in recorded}, recorded
    )


def seed_generators() -> None:
    """Set the global random generators as they are in the harness after it has loaded a task without draws of its own.

    Helper functions that guess an answer (`mmmu_val_*`) continue from this state.
    """
    seed_global_generators((0, 1234))
    draw_names(LOOKUPS_BEFORE_PROMPTS)


def prepare_task(spec: TaskSpec, rendering: RenderingOptions, splits: Splits) -> PlannedTask:
    """Prepare a task with recorded documents."""
    check_functions(spec)
    task = open_task(spec, rendering, splits)
    return PlannedTask(task=task, scorer=Scorer.from_spec(task.spec), documents=len(task), digest="")


def rendering_from_record(record: Mapping[str, Any]) -> RenderingOptions:
    """Return the rendering arguments of a record."""
    return RenderingOptions(
        num_fewshot=record.get("num_fewshot_arg"),
        chat=bool(record.get("chat")),
        multiturn=bool(record.get("fewshot_as_multiturn")),
        system_instruction=record.get("system_instruction"),
        limit=record.get("limit"),
    )


def replay_task(
    planned: PlannedTask,
    rendered: list[tuple[Document, tuple[Request, ...]]],
    respond: Respond,
    *,
    iterations: int,
) -> TaskReplay:
    """Answer every request from the record, judge and aggregate. `respond` is called once per request, in order."""
    opened = [_open_document(planned, document, requests, respond) for document, requests in rendered]
    judged = judge_documents(planned, opened)
    estimates = estimate_task(planned, _verdict_rows(judged), iterations=iterations)
    return TaskReplay(planned, rendered, judged, estimates)


def _open_document(
    planned: PlannedTask, document: Document, requests: tuple[Request, ...], respond: Respond
) -> OpenDocument:
    outcomes: list[Outcome | None] = []
    responses: Sequence[Any] = ()
    formatted = iter(format_requests(planned, document, requests))
    for request in requests:
        if request.repeat == 0:
            responses = respond(next(formatted))
            if not responses:
                raise DatasetError(f"document {document.index} has a request without a recorded response")
        outcomes.append(
            Response(request_id=request.id, value=_read_response(responses[request.repeat % len(responses)]))
        )
    return OpenDocument(document, requests, (), outcomes, 0)


def _read_response(recorded: Any) -> str | LogProbability:
    if isinstance(recorded, list):
        return LogProbability(recorded[0], bool(recorded[1]))
    return recorded if isinstance(recorded, str) else LogProbability(recorded)


def _verdict_rows(judged: JudgedBatch) -> Iterator[tuple[str, str, int, str, Any]]:
    """Return the verdicts as rows of the journal."""
    rows: list[tuple[str, str, int, str, Any]] = []
    for verdict in judged.verdicts:
        match verdict:
            case Score(value=value) | Evidence(value=value):
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "score", value))
            case Unscored():
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "unscored", None))
    return iter(sorted(rows, key=lambda row: (row[0], row[1], row[2])))
