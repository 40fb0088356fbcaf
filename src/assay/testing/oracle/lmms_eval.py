"""Replay of task records made by lmms-eval: contexts, media, messages, settings, metrics, results."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.codec import decode, encode
from assay.core.documents import Document
from assay.core.requests import Request
from assay.core.responses import Failure, LogProbability, Outcome, Response
from assay.core.verdicts import Evidence, Score, Unscored
from assay.engine.judging.documents import Judged, OpenDocument, judge
from assay.engine.planning.plan import PlannedTask, check_functions
from assay.engine.results.summary import estimate_task
from assay.engine.running.dialogues import Talks
from assay.scoring.scorer import Scorer
from assay.tasks.load import task_from_config
from assay.tasks.makers import loan
from assay.tasks.task import Rendering, Task, open_task
from assay.tasks.yaml_reader import read_task_file
from assay.testing.oracle.checks import Checks
from assay.testing.oracle.compare import difference
from assay.testing.oracle.lmms_shown import Shown, messages_of, request_of, results_of
from assay.testing.oracle.lmms_values import Media
from assay.testing.oracle.lmms_values import encode as written
from assay.testing.oracle.lmms_world import World, mismatch
from assay.user_code.runner import Draws

__all__ = ["LmmsReplay"]

_ITERATIONS = 1000
_OWN_NAMES = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "token_counts"}
"""What a recorded sample holds beside its metrics: a metric of such a name was not recorded."""


class LmmsReplay:
    """Replays records one after the other in one process."""

    def __init__(self, corpus: Path, root: Path) -> None:
        self._root = root
        self._media = Media(corpus)
        self._world = World()
        self._shown = Shown()

    def close(self) -> None:
        self._world.close()

    def record(self, record: Mapping[str, Any], number: int = 0) -> Checks:
        """Do a recorded task again and compare. Whatever fails is a difference, not the end."""
        checks = Checks(task=record["task"], number=number)
        flags = record.get("flags") or {}
        checks.scores_apart = (
            "scoring asks a judge over the network"
            if flags.get("network_attempted")
            else "scores vary by themselves"
            if flags.get("nondeterministic")
            else mismatch(record)
        )
        try:
            with self._world.of(record, self._media.folder / "media", None):
                _Replayed(record, self._root, self._media, self._world, self._shown, checks).compare()
        except Exception as error:  # noqa: BLE001 - helper code of any task runs here
            checks.spoil(f"{type(error).__name__}: {error}")
            checks.excluded = checks.excluded or mismatch(record)
        return checks


class _Replayed:
    """One record."""

    def __init__(
        self, record: Mapping[str, Any], root: Path, media: Media, world: World, shown: Shown, checks: Checks
    ) -> None:
        self.record, self.checks, self.shown, self.world = record, checks, shown, world
        self.path = root / str(record["yaml_relpath"]).removeprefix("tasks/")
        self.splits = _splits(record, media)
        world.datasets = self.splits

    def compare(self) -> None:
        record, checks = self.record, self.checks
        planned = self.planned()
        asked = self.asked(planned)
        checks.requests = self.requests(asked)
        if checks.requests:
            checks.metrics = checks.results = "requests differ"
            return
        if record.get("samples") is None:
            checks.scores_apart = checks.scores_apart or "no scores were recorded"
            checks.requests = self.texts(planned)
            return
        judged = judge(planned, asked)
        checks.metrics = self.metrics(judged) or self.alternatives(planned)
        checks.results = self.results(planned, judged)
        checks.requests = self.texts(planned)

    # --- asking ------------------------------------------------------------------------------------

    def planned(self) -> PlannedTask:
        seed_all()
        spec = task_from_config(
            read_task_file(self.path), {"task": self.record["task"], "dialect": "lmms_eval"}
        )
        check_functions(spec)
        self.spec = spec
        media = bool((self.record.get("flags") or {}).get("process_with_media"))
        rendering = Rendering(model_name="default", chat_messages=False, process_with_media=media)
        task = open_task(spec, rendering, self.splits)
        task.shape  # noqa: B018 - the harness looks at the first document before it renders any
        return PlannedTask(task=task, scorer=Scorer.of(task.spec), documents=len(task), digest="")

    def asked(self, planned: PlannedTask) -> list[OpenDocument]:
        """Every document with its requests and the recorded responses; dialogues to their end."""
        with self.shown.listening():
            opened = [self._opened(planned, *pair) for pair in planned.task.render()]
            for document in opened:
                if isinstance(document.talks, Talks):
                    self._talk(planned, document, document.talks)
        return opened

    def _opened(
        self, planned: PlannedTask, document: Document, requests: tuple[Request, ...]
    ) -> OpenDocument:
        talks = Talks(planned.task, document, requests) if planned.task.is_dialogue else None
        known = self.record["responses"][str(document.index)]
        outcomes: list[Outcome | None] = [
            Response(request_id=request.id, value=_value(known[at % len(known)]))
            for at, request in enumerate(requests)
        ]
        return OpenDocument(document, requests, (), outcomes, 0, talks=talks)

    def _talk(self, planned: PlannedTask, document: OpenDocument, talks: Talks) -> None:
        known = self.record["responses"][str(document.document.index)]
        draws = Draws((0, 1234), planned.task.name)
        while True:
            following = talks.go_on(document.requests, document.outcomes, draws, None)
            if isinstance(following, Failure):
                document.outcomes.append(following)
                return
            if not following:
                return
            document.requests += tuple(following)
            for request in following:
                at = min(len(document.outcomes), len(known) - 1)
                document.outcomes.append(Response(request_id=request.id, value=_value(known[at])))

    def requests(self, asked: Sequence[OpenDocument]) -> str | None:
        ours = [request_of(self.shown, request) for document in asked for request in document.requests]
        theirs = [_recorded(one) for one in _flat(self.record["requests"])]
        if self.record["output_type"] in ("generate_until_agentic", "generate_until_multi_round"):
            for one in (*ours, *theirs):  # lmms-eval does not number rounds
                one["idx"] = 0
        return difference(ours, theirs, "requests")

    def texts(self, planned: PlannedTask) -> str | None:
        """Texts, targets and choices of each document, messages, and the texts for other models."""
        task, record = planned.task, self.record
        ours = []
        seed_all()
        for document in task.documents():
            fields = loan(document.fields)
            ours.append(
                {
                    "doc_id": document.index,
                    "text": written(task.question(fields)),
                    "target": written(task.target(fields)),
                    "choices": written(task.choices(fields)),
                }
            )
        found = difference(ours, list(record["per_doc"]), "per_doc")
        return found or self._messages(planned) or self._settings() or self._models()

    def _messages(self, planned: PlannedTask) -> str | None:
        recorded = self.record.get("messages")
        if recorded is None or (self.record.get("flags") or {}).get("messages_error"):
            return None
        if isinstance(self.record["requests"][0].get("visuals"), str):
            return None  # a path alone: lmms-eval takes each of its letters for a video
        seed_all()
        task = planned.task
        shots = task.shots.begin()
        ours = []
        for document in task.documents():
            fields = loan(document.fields)
            with self.shown.listening():
                ours.append(
                    {
                        "doc_id": document.index,
                        "messages": messages_of(self.shown, task, fields, shots(fields)),
                    }
                )
        return difference(ours, list(recorded), "messages")

    def _settings(self) -> str | None:
        generates = "generate" in self.record["output_type"]
        for model, values in self.record["generation_kwargs"].items():
            if values is not None and generates:
                ours = dict(self._for_model(model).settings.values)
                if found := difference(written(ours), values, f"generation_kwargs.{model}"):
                    return found
        for model, values in self.record["specific_kwargs"].items():
            ours_kept = self._for_model(model).visuals.keywords
            if found := difference(written(ours_kept), values, f"specific_kwargs.{model}"):
                return found
        return None

    def _models(self) -> str | None:
        for model, texts in (self.record.get("per_model_text") or {}).items():
            if isinstance(texts, dict):
                continue  # the helper failed for this model
            task = self._for_model(model)
            seed_all()
            ours = [written(task.question(loan(document.fields))) for document in task.documents()]
            for at, text in enumerate(texts):
                if not isinstance(text, dict) and (found := difference(ours[at], text, f"{model}[{at}]")):
                    return found
        return None

    def _for_model(self, model: str) -> Task:
        """The same task with the same functions as another model gets it."""
        return open_task(self.spec, Rendering(model_name=model, chat_messages=False), self.splits)

    # --- judging -----------------------------------------------------------------------------------

    def metrics(self, judged: Judged) -> str | None:
        made: dict[tuple[str, int], dict[str, Any]] = {}
        for verdict in judged.verdicts:
            entry = made.setdefault((verdict.pipeline, verdict.document), {})
            entry[verdict.metric] = (
                f"unscored: {verdict.why[-300:]}" if isinstance(verdict, Unscored) else written(verdict.value)
            )
        ours = {
            (answer.pipeline, answer.document): {
                "filtered_resps": written(list(answer.values)),
                "metrics": made.get((answer.pipeline, answer.document), {}),
            }
            for answer in judged.answers
        }
        for row in self.record["samples"]:
            key = (row["filter"], row["doc_id"])
            if key not in ours:
                return f"{key}: no answer; {next(iter(made.get(key, {}).values()), '')}"
            recorded = {name: row[name] for name in ("filtered_resps", "metrics")}
            for name in _OWN_NAMES - set(row["metrics"]):  # overwritten in the recording
                ours[key]["metrics"].pop(name, None)
            if found := difference(ours[key], recorded, f"samples{list(key)}"):
                return found
        return None

    def alternatives(self, planned: PlannedTask) -> str | None:
        task = planned.task
        for at, row in enumerate(self.record.get("alt_samples") or ()):
            seed_all()
            fields = loan(task.judged_fields(task.rows[row["doc_id"]]))
            try:
                ours = written(self._judge_one(planned, fields, row["response"]))
            except Exception as error:  # noqa: BLE001 - helper code of any task runs here
                if "error" not in row:
                    return f"alt_samples[{at}]: {type(error).__name__}: {error}"
                continue
            if "metrics" not in row:
                continue
            for name in _OWN_NAMES - set(row["metrics"]):
                ours.pop(name, None)
            if found := difference(ours, row["metrics"], f"alt_samples[{at}]"):
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

    def results(self, planned: PlannedTask, judged: Judged) -> str | None:
        record = self.record
        arguments = Namespace(
            output_path=str(self.world.work / "out"), model="default", model_args="", process_with_media=False
        )
        skipped = set(record.get("skipped_metrics") or ())
        rows = (row for row in _verdict_rows(judged) if row[1] not in skipped)
        estimates = estimate_task(planned, rows, iterations=_ITERATIONS, arguments=arguments)
        reported = {verdict.metric for verdict in judged.verdicts}
        ours = results_of(planned, estimates, judged)
        recorded = {
            key: value
            for key, value in record["results"].items()
            if "," in key and _metric_of(key, skipped | reported) not in skipped
        }
        kept = {
            key: value for key, value in ours.items() if _metric_of(key, skipped | reported) not in skipped
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
        return difference(kept, recorded, "results") or difference(facts, theirs)


def _flat(requests: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Recorded requests; the rounds of a dialogue as requests of their own."""
    for one in requests:
        if "rounds" in one:
            yield from ({**one, **entry} for entry in one["rounds"] if "ctx" in entry)
        else:
            yield one


def _recorded(request: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared of a recorded request."""
    keys = ("doc_id", "idx", "ctx", "generation_kwargs", "continuation")
    kept = {key: request[key] for key in keys if key in request}
    return {**kept, "visuals": list(_one_by_one(request.get("visuals") or []))}


def _one_by_one(visuals: Any) -> Iterator[Any]:
    """Recorded visuals without lists in lists, or with a list around one alone."""
    if isinstance(visuals, list):
        for one in visuals:
            yield from _one_by_one(one)
    else:
        yield visuals


def _metric_of(key: str, names: set[str]) -> str:
    """The metric a key of the results speaks of."""
    name = key.rpartition(",")[0]
    for suffix in ("_stderr_clustered", "_stderr_clt", "_stderr"):
        if name.endswith(suffix) and name.removesuffix(suffix) in names:
            return name.removesuffix(suffix)
    return name


def _splits(record: Mapping[str, Any], media: Media) -> Any:
    """The dataset of a record: the same documents under every split name."""
    import datasets

    rows = media.decode(record["docs"])
    features = datasets.Features.from_dict(record["features_hf"])
    columns = {name: [row.get(name) for row in rows] for name in features}
    made = datasets.Dataset.from_dict(columns, features=features)
    names = record["splits"]
    return datasets.DatasetDict(dict.fromkeys(names, made))


def _value(recorded: Any) -> str | LogProbability:
    if isinstance(recorded, list):
        return LogProbability(-recorded[0], bool(recorded[1]))
    return str(recorded)


def _verdict_rows(judged: Judged) -> Iterator[tuple[str, str, int, str, Any]]:
    """Verdicts as the journal would give them back."""
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


def seed_all() -> None:
    """The global random states as the harness leaves them before it loads a task."""
    import numpy

    random.seed(0)
    numpy.random.seed(1234)
