"""Replay task records of lmms_eval: contexts, media, messages, settings, metrics and results."""

from __future__ import annotations

import random
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.records.codec import decode, encode
from assay.core.records.documents import Document
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.core.records.verdicts import Evidence, Score, Unscored
from assay.engine.judging.documents import judge_documents
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.plan import check_functions
from assay.engine.planning.records import PlannedTask
from assay.engine.results.summary import estimate_task
from assay.engine.running.dialogues import DocumentDialogues
from assay.scoring.scorer import Scorer
from assay.tasks.files.task_loader import task_from_config
from assay.tasks.files.yaml_reader import read_task_file
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.task import RenderingOptions, Task, open_task
from assay.user_code.random_state import TaskRandomState
from tools.oracle.checks import RecordChecks
from tools.oracle.comparison import find_difference
from tools.oracle.lmms_eval_environment import RecordingEnvironment, find_package_mismatch
from tools.oracle.lmms_eval_format import MediaTracker, format_messages, format_request, format_results
from tools.oracle.lmms_eval_values import Media, encode_value

__all__ = ["LmmsReplay"]

_NEW_ERRORS = re.compile(r"_stderr_(clt|clustered),")
_ITERATIONS = 1000
_SAMPLE_KEYS = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "token_counts"}
"""Keys of a recorded sample that are not metrics; a metric with such a name was overwritten."""


class LmmsReplay:
    """Replays records one by one in this process."""

    def __init__(self, corpus: Path, root: Path) -> None:
        self._root = root
        self._media = Media(corpus)
        self._environment = RecordingEnvironment()
        self._tracker = MediaTracker()

    def close(self) -> None:
        self._environment.close()

    def replay_record(self, record: Mapping[str, Any], number: int = 0) -> RecordChecks:
        """Repeat a recorded task and compare. An exception counts as a difference."""
        checks = RecordChecks(task=record["task"], number=number)
        flags = record.get("flags") or {}
        checks.scores_apart = (
            "scoring calls a judge over the network"
            if flags.get("network_attempted")
            else "scores are not deterministic"
            if flags.get("nondeterministic")
            else find_package_mismatch(record)
        )
        try:
            with self._environment.prepare(record, self._media.folder / "media", None):
                _RecordReplay(
                    record, self._root, self._media, self._environment, self._tracker, checks
                ).compare()
        except Exception as error:  # noqa: BLE001 - helper code of any task runs here
            checks.fail_remaining(f"{type(error).__name__}: {error}")
            checks.excluded = checks.excluded or find_package_mismatch(record)
        return checks


class _RecordReplay:
    """The replay of one record."""

    def __init__(
        self,
        record: Mapping[str, Any],
        root: Path,
        media: Media,
        environment: RecordingEnvironment,
        tracker: MediaTracker,
        checks: RecordChecks,
    ) -> None:
        self.record, self.checks, self.tracker, self.environment = record, checks, tracker, environment
        self.path = root / str(record["yaml_relpath"]).removeprefix("tasks/")
        self.splits = _build_splits(record, media)
        environment.datasets = self.splits

    def compare(self) -> None:
        record, checks = self.record, self.checks
        planned = self._plan_task()
        opened = self._open_documents(planned)
        checks.requests = self._compare_requests(opened)
        if checks.requests:
            checks.metrics = checks.results = "requests differ"
            return
        if record.get("samples") is None:
            checks.scores_apart = checks.scores_apart or "no scores recorded"
            checks.requests = self._compare_texts(planned)
            return
        judged = judge_documents(planned, opened)
        checks.metrics = self._compare_metrics(judged) or self._compare_alternatives(planned)
        checks.results = self._compare_results(planned, judged)
        checks.requests = self._compare_texts(planned)

    # --- requests ------------------------------------------------------------------------------------

    def _plan_task(self) -> PlannedTask:
        seed_generators()
        spec = task_from_config(
            read_task_file(self.path), {"task": self.record["task"], "dialect": "lmms_eval"}
        )
        check_functions(spec)
        self.spec = spec
        media = bool((self.record.get("flags") or {}).get("process_with_media"))
        rendering = RenderingOptions(model_name="default", chat_messages=False, process_with_media=media)
        task = open_task(spec, rendering, self.splits)
        task.shape  # noqa: B018 - the harness reads the first document before it renders any
        return PlannedTask(task=task, scorer=Scorer.from_spec(task.spec), documents=len(task), digest="")

    def _open_documents(self, planned: PlannedTask) -> list[OpenDocument]:
        """Open every document with its requests and recorded responses; run dialogues to their end."""
        with self.tracker.track():
            opened = [self._open_document(planned, *pair) for pair in planned.task.render()]
            for document in opened:
                if isinstance(document.dialogues, DocumentDialogues):
                    self._run_dialogue(planned, document, document.dialogues)
        return opened

    def _open_document(
        self, planned: PlannedTask, document: Document, requests: tuple[Request, ...]
    ) -> OpenDocument:
        talks = DocumentDialogues(planned.task, document, requests) if planned.task.is_dialogue else None
        responses = self.record["responses"][str(document.index)]
        outcomes: list[Outcome | None] = [
            Response(request_id=request.id, value=_read_response(responses[index % len(responses)]))
            for index, request in enumerate(requests)
        ]
        return OpenDocument(document, requests, (), outcomes, 0, dialogues=talks)

    def _run_dialogue(self, planned: PlannedTask, document: OpenDocument, talks: DocumentDialogues) -> None:
        responses = self.record["responses"][str(document.document.index)]
        draws = TaskRandomState((0, 1234), planned.task.name)
        while True:
            following = talks.advance(document.requests, document.outcomes, draws, None)
            if isinstance(following, Failure):
                document.outcomes.append(following)
                return
            if not following:
                return
            document.requests += tuple(following)
            for request in following:
                index = min(len(document.outcomes), len(responses) - 1)
                document.outcomes.append(
                    Response(request_id=request.id, value=_read_response(responses[index]))
                )

    def _compare_requests(self, opened: Sequence[OpenDocument]) -> str | None:
        ours = [format_request(self.tracker, request) for document in opened for request in document.requests]
        theirs = [_select_request_keys(one) for one in _flatten_rounds(self.record["requests"])]
        if self.record["output_type"] in ("generate_until_agentic", "generate_until_multi_round"):
            for one in (*ours, *theirs):  # lmms_eval does not number rounds
                one["idx"] = 0
        return find_difference(ours, theirs, "requests")

    def _compare_texts(self, planned: PlannedTask) -> str | None:
        """Compare texts, targets, choices and messages of each document, settings, and the texts for other models."""
        task, record = planned.task, self.record
        ours = []
        seed_generators()
        for document in task.documents():
            fields = copy_fields(document.fields)
            ours.append(
                {
                    "doc_id": document.index,
                    "text": encode_value(task.question(fields)),
                    "target": encode_value(task.target(fields)),
                    "choices": encode_value(task.choices(fields)),
                }
            )
        found = find_difference(ours, list(record["per_doc"]), "per_doc")
        return found or self._compare_messages(planned) or self._compare_settings() or self._compare_models()

    def _compare_messages(self, planned: PlannedTask) -> str | None:
        recorded = self.record.get("messages")
        if recorded is None or (self.record.get("flags") or {}).get("messages_error"):
            return None
        if isinstance(self.record["requests"][0].get("visuals"), str):
            return None  # a bare path: lmms_eval treats each character as a video
        seed_generators()
        task = planned.task
        shots = task.fewshot.start_sampling()
        ours = []
        for document in task.documents():
            fields = copy_fields(document.fields)
            with self.tracker.track():
                ours.append(
                    {
                        "doc_id": document.index,
                        "messages": format_messages(self.tracker, task, fields, shots(fields)),
                    }
                )
        return find_difference(ours, list(recorded), "messages")

    def _compare_settings(self) -> str | None:
        generates = "generate" in self.record["output_type"]
        for model, values in self.record["generation_kwargs"].items():
            if values is not None and generates:
                ours = dict(self._open_for_model(model).settings.values)
                if found := find_difference(encode_value(ours), values, f"generation_kwargs.{model}"):
                    return found
        for model, values in self.record["specific_kwargs"].items():
            keywords = self._open_for_model(model).multimodal.keywords
            if found := find_difference(encode_value(keywords), values, f"specific_kwargs.{model}"):
                return found
        return None

    def _compare_models(self) -> str | None:
        for model, texts in (self.record.get("per_model_text") or {}).items():
            if isinstance(texts, dict):
                continue  # the helper function failed for this model
            task = self._open_for_model(model)
            seed_generators()
            ours = [
                encode_value(task.question(copy_fields(document.fields))) for document in task.documents()
            ]
            for index, text in enumerate(texts):
                if not isinstance(text, dict) and (
                    found := find_difference(ours[index], text, f"{model}[{index}]")
                ):
                    return found
        return None

    def _open_for_model(self, model: str) -> Task:
        """Open the task with the settings of another model and the same functions."""
        return open_task(self.spec, RenderingOptions(model_name=model, chat_messages=False), self.splits)

    # --- scores -----------------------------------------------------------------------------------

    def _compare_metrics(self, judged: JudgedBatch) -> str | None:
        made: dict[tuple[str, int], dict[str, Any]] = {}
        for verdict in judged.verdicts:
            entry = made.setdefault((verdict.pipeline, verdict.document), {})
            entry[verdict.metric] = (
                f"unscored: {verdict.why[-300:]}"
                if isinstance(verdict, Unscored)
                else encode_value(verdict.value)
            )
        ours = {
            (answer.pipeline, answer.document): {
                "filtered_resps": encode_value(list(answer.values)),
                "metrics": made.get((answer.pipeline, answer.document), {}),
            }
            for answer in judged.answers
        }
        for row in self.record["samples"]:
            key = (row["filter"], row["doc_id"])
            if key not in ours:
                return f"{key}: no answer; {next(iter(made.get(key, {}).values()), '')}"
            recorded = {name: row[name] for name in ("filtered_resps", "metrics")}
            for name in _SAMPLE_KEYS - set(row["metrics"]):  # overwritten in the recording
                ours[key]["metrics"].pop(name, None)
            if found := find_difference(ours[key], recorded, f"samples{list(key)}"):
                return found
        return None

    def _compare_alternatives(self, planned: PlannedTask) -> str | None:
        task = planned.task
        for index, row in enumerate(self.record.get("alt_samples") or ()):
            seed_generators()
            fields = copy_fields(task.scoring_fields(task.rows[row["doc_id"]]))
            try:
                ours = encode_value(self._judge_one(planned, fields, row["response"]))
            except Exception as error:  # noqa: BLE001 - helper code of any task runs here
                if "error" not in row:
                    return f"alt_samples[{index}]: {type(error).__name__}: {error}"
                continue
            if "metrics" not in row:
                continue
            for name in _SAMPLE_KEYS - set(row["metrics"]):
                ours.pop(name, None)
            if found := find_difference(ours, row["metrics"], f"alt_samples[{index}]"):
                return found
        return None

    def _judge_one(self, planned: PlannedTask, fields: Mapping[str, Any], response: Any) -> dict[str, Any]:
        task, own = planned.task, planned.spec.process_results is not None
        inputs, targets = task.shape
        return planned.scorer.judge(
            fields=fields,
            answers=response if isinstance(response, list) else [response],
            target=None if own else task.target(fields),
            choices=None if own else task.choices(fields),
            multiple_inputs=inputs,
            multiple_targets=targets,
        )

    def _compare_results(self, planned: PlannedTask, judged: JudgedBatch) -> str | None:
        record = self.record
        arguments = Namespace(
            output_path=str(self.environment.work / "out"),
            model="default",
            model_args="",
            process_with_media=False,
        )
        skipped = set(record.get("skipped_metrics") or ())
        rows = (row for row in _verdict_rows(judged) if row[1] not in skipped)
        estimates = estimate_task(planned, rows, iterations=_ITERATIONS, arguments=arguments)
        reported = {verdict.metric for verdict in judged.verdicts}
        ours = format_results(planned, estimates, judged)
        recorded = {
            key: value
            for key, value in record["results"].items()
            if "," in key and _metric_from_key(key, skipped | reported) not in skipped
        }
        has_new_errors = any("_stderr_clt," in key for key in recorded)  # since lmms_eval 0.6
        kept = {
            key: value
            for key, value in ours.items()
            if _metric_from_key(key, skipped | reported) not in skipped
            and (has_new_errors or not _NEW_ERRORS.search(key))
        }
        facts = {
            "alias": planned.spec.alias or planned.spec.name,
            "higher_is_better": {name: use.higher_is_better for name, use in planned.scorer.metrics.items()},
            "n_samples": {"original": len(planned.task.rows), "effective": planned.documents},
        }
        theirs = {
            "alias": record["results"].get("alias", facts["alias"]),
            "higher_is_better": record.get("higher_is_better", facts["higher_is_better"]),
            "n_samples": record.get("n_samples", facts["n_samples"]),
        }
        return find_difference(kept, recorded, "results") or find_difference(facts, theirs)


def _flatten_rounds(requests: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Return the recorded requests, with each round of a dialogue as a request."""
    for one in requests:
        if "rounds" in one:
            yield from ({**one, **entry} for entry in one["rounds"] if "ctx" in entry)
        else:
            yield one


def _select_request_keys(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compared keys of a recorded request."""
    keys = ("doc_id", "idx", "ctx", "generation_kwargs", "continuation")
    kept = {key: request[key] for key in keys if key in request}
    return {**kept, "visuals": list(_flatten_visuals(request.get("visuals") or []))}


def _flatten_visuals(visuals: Any) -> Iterator[Any]:
    """Flatten recorded visuals to a list."""
    if isinstance(visuals, list):
        for one in visuals:
            yield from _flatten_visuals(one)
    else:
        yield visuals


def _metric_from_key(key: str, names: set[str]) -> str:
    """Return the metric of a result key."""
    name = key.rpartition(",")[0]
    for suffix in ("_stderr_clustered", "_stderr_clt", "_stderr"):
        if name.endswith(suffix) and name.removesuffix(suffix) in names:
            return name.removesuffix(suffix)
    return name


def _build_splits(record: Mapping[str, Any], media: Media) -> Any:
    """Build the dataset of a record: the same documents in every split."""
    import datasets

    rows = media.decode(record["docs"])
    features = datasets.Features.from_dict(record["features_hf"])
    columns = {name: [row.get(name) for row in rows] for name in features}
    made = datasets.Dataset.from_dict(columns, features=features)
    names = record["splits"]
    return datasets.DatasetDict(dict.fromkeys(names, made))


def _read_response(recorded: Any) -> str | LogProbability:
    if isinstance(recorded, list):
        return LogProbability(-recorded[0], bool(recorded[1]))
    return str(recorded)


def _verdict_rows(judged: JudgedBatch) -> Iterator[tuple[str, str, int, str, Any]]:
    """Return the verdicts as rows of the journal, evidence encoded and decoded."""
    rows: list[tuple[str, str, int, str, Any]] = []
    for verdict in judged.verdicts:
        match verdict:
            case Score(value=value):
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "score", value))
            case Evidence(value=value):
                kept = decode(encode(value))
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "score", kept))
            case Unscored():
                rows.append((verdict.pipeline, verdict.metric, verdict.document, "unscored", None))
    return iter(sorted(rows, key=lambda row: (row[0], row[1], row[2])))


def seed_generators() -> None:
    """Seed the global random generators as the harness does before it loads a task."""
    import numpy

    random.seed(0)
    numpy.random.seed(1234)
