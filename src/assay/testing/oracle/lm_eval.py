"""Replay of records made by lm-evaluation-harness: requests, filtered responses, metrics, results."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.messages import Prompt
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import LogProbability, Outcome, Response
from assay.core.specs import TaskSpec
from assay.core.verdicts import Estimate, Evidence, Score, Unscored
from assay.engine.judging import Judged, OpenDocument, judge
from assay.engine.plan import PlannedTask, check_functions
from assay.engine.summary import estimate_task
from assay.scoring.scorer import Scorer
from assay.tasks.load import task_from_config
from assay.tasks.task import Rendering, Task
from assay.tasks.yaml_reader import read_task_file
from assay.testing.oracle.compare import difference
from assay.testing.oracle.corpus import encode_value, plain_documents, read_records

__all__ = ["Checks", "replay"]

Splits = Mapping[str, Any]


@dataclass(slots=True)
class Checks:
    """What came of one record."""

    task: str
    variant: str = "default"
    requests: str | None = None
    metrics: str | None = None
    results: str | None = None
    excluded: str = ""
    """Why the record does not count: it depends on a global random state."""

    estimates: list[Estimate] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.task if self.variant == "default" else f"{self.task}#{self.variant}"


def replay(
    corpus: Path, task_root: Path, *, family: str = "", task: str = "", every: int = 1
) -> Iterator[Checks]:
    """Every record of a corpus (or of one family or task), done again and compared."""
    root = tasks_folder(task_root)
    splits: Splits = {}
    recorded: Any = None
    for number, record in enumerate(read_records(corpus, "tasks-*.jsonl*")):
        if record["splits"] is not None:
            recorded, splits = record["splits"], {}
        if (task and record["task"] != task) or (
            family and not record["yaml_relpath"].startswith(f"{family}/")
        ):
            continue
        if number % every:
            continue
        if not splits:
            splits = _datasets(recorded)
        checks = Checks(task=record["task"], variant=record["variant"])
        if record.get("uses_global_rng"):
            checks.excluded = "uses a global random state"
        try:
            _replay_record(record, root, splits, checks)
        except Exception as error:  # noqa: BLE001 - a record that cannot be replayed is a difference, not the end
            why = f"{type(error).__name__}: {error}"
            checks.requests = checks.requests or why
            checks.metrics = checks.metrics or why
            checks.results = checks.results or why
        yield checks


def tasks_folder(root: Path) -> Path:
    """The folder YAML paths are relative to: given itself, or a checkout or package that holds it."""
    for candidate in (root / "lm_eval" / "tasks", root / "tasks", root):
        if candidate.is_dir():
            return candidate
    return root


def _datasets(recorded: Mapping[str, list[Any]]) -> Splits:
    import datasets

    made = {}
    for name, rows in recorded.items():
        made[name] = datasets.Dataset.from_list(plain_documents(rows))
    return made


def _replay_record(record: Mapping[str, Any], root: Path, splits: Splits, checks: Checks) -> None:
    import numpy

    random.seed(0)
    numpy.random.seed(1234)
    spec = task_from_config(read_task_file(root / record["yaml_relpath"]), {"task": record["task"]})
    planned = prepare(spec, rendering_of(record), splits)
    asked = [(document, requests) for document, requests in planned.task.render()]
    ours = [shown for _, requests in asked for shown in shown_requests(requests, planned.task.spec.repeats)]
    theirs = [
        {key: request[key] for key in ("type", "args", "doc_id", "idx", "repeats")}
        for request in record["requests"]
    ]
    checks.requests = difference(ours, theirs)
    if checks.requests:
        checks.metrics = checks.results = "requests differ"
        return
    keys = iter(request["key"] for request in record["requests"])
    opened = [open_document(document, requests, keys, record["responses"]) for document, requests in asked]
    judged = judge(planned, opened)
    checks.metrics = difference(our_samples(judged), their_samples(record["samples"]))
    checks.estimates = estimate_task(planned, verdict_rows(judged), iterations=record["bootstrap_iters"])
    recorded = {key: value for key, value in record["results"].items() if "," in key}
    checks.results = difference(encode_value(results_of(checks.estimates)), recorded) or difference(
        {"n-shot": planned.spec.metadata.get("num_fewshot", planned.task.num_fewshot)},
        {"n-shot": record["n_shot"]},
    )


def prepare(spec: TaskSpec, rendering: Rendering, splits: Splits) -> PlannedTask:
    """A task on recorded documents."""
    check_functions(spec)
    task = Task(spec, rendering, splits)
    return PlannedTask(task=task, scorer=Scorer.of(spec), documents=len(task), digest="")


def rendering_of(record: Mapping[str, Any]) -> Rendering:
    """The arguments a record was made with."""
    return Rendering(
        num_fewshot=record["num_fewshot_arg"],
        chat=record["chat"],
        multiturn=record["fewshot_as_multiturn"],
        system_instruction=record["system_instruction"],
        limit=record["limit"],
    )


def shown_requests(requests: Sequence[Request], repeats: int) -> Iterator[dict[str, Any]]:
    """Requests as the corpus writes them."""
    for request in requests:
        if request.repeat:
            continue
        kind, arguments = _arguments(request)
        media = _media(request.prompt)
        yield {
            "type": kind,
            "args": encode_value(arguments + ([media] if media else [])),
            "doc_id": request.document,
            "idx": request.index,
            "repeats": repeats,
        }


def _arguments(request: Request) -> tuple[str, list[Any]]:
    context = prompt_text(request.prompt)
    match request:
        case Generate():
            return "generate_until", [context, dict(request.settings.values)]
        case Likelihood():
            return "loglikelihood", [context, request.continuation]
        case RollingLikelihood():
            return "loglikelihood_rolling", [context]


def prompt_text(prompt: Prompt) -> str:
    """The prompt after the corpus's chat template."""
    if not prompt.chat:
        return prompt.text
    pieces = [f"<|{message.role}|>\n{message.text}<|end|>\n" for message in prompt.messages]
    if prompt.continues:
        return "".join(pieces).removesuffix("<|end|>\n")
    return "".join(pieces) + "<|assistant|>\n"


def _media(prompt: Prompt) -> dict[str, Any]:
    pictures = [part.load() for part in prompt.media]
    return {"visual": pictures} if pictures else {}


def open_document(
    document: Any, requests: tuple[Request, ...], keys: Iterator[str], responses: Any
) -> OpenDocument:
    """A document with its recorded responses."""
    outcomes: list[Outcome | None] = []
    known: list[Any] = []
    for request in requests:
        if request.repeat == 0:
            known = responses[next(keys)]
        value = known[request.repeat % len(known)]
        outcomes.append(Response(request_id=request.id, value=_value(value)))
    return OpenDocument(document, requests, (), outcomes, 0)


def _value(recorded: Any) -> str | LogProbability:
    if isinstance(recorded, list):
        return LogProbability(recorded[0], bool(recorded[1]))
    return recorded if isinstance(recorded, str) else LogProbability(recorded)


def our_samples(judged: Judged) -> list[Any]:
    """(filter, document, filtered responses, metrics), as the corpus lists them."""
    metrics: dict[tuple[str, int], dict[str, Any]] = {}
    for verdict in judged.verdicts:
        entry = metrics.setdefault((verdict.pipeline, verdict.document), {})
        entry[verdict.metric] = (
            f"unscored: {verdict.why}" if isinstance(verdict, Unscored) else encode_value(verdict.value)
        )
    rows = [
        [
            answer.pipeline,
            answer.document,
            encode_value(list(answer.values)),
            metrics.get((answer.pipeline, answer.document), {}),
        ]
        for answer in judged.answers
    ]
    return sorted(rows, key=lambda row: (row[0], row[1]))


def their_samples(samples: Sequence[Mapping[str, Any]]) -> list[Any]:
    rows = [
        [sample["filter"], sample["doc_id"], sample["filtered_resps"], sample["metrics"]]
        for sample in samples
    ]
    return sorted(rows, key=lambda row: (row[0], row[1]))


def verdict_rows(judged: Judged) -> list[tuple[str, str, int, str, Any]]:
    """Verdicts as the journal would give them."""
    rows: list[tuple[str, str, int, str, Any]] = []
    for verdict in judged.verdicts:
        match verdict:
            case Score(value=value) | Evidence(value=value):
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "score", value))
            case Unscored():
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "unscored", None))
    return sorted(rows, key=lambda row: (row[0], row[1], row[2]))


def results_of(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """The numbers under lm-eval's keys."""
    numbers: dict[str, Any] = {}
    for estimate in estimates:
        numbers[f"{estimate.metric},{estimate.pipeline}"] = estimate.value
        numbers[f"{estimate.metric}_stderr,{estimate.pipeline}"] = (
            "N/A" if estimate.stderr is None else estimate.stderr
        )
    return numbers
