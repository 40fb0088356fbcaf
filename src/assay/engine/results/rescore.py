"""`score`: apply filters, metrics and judges again to the responses of a run, without its model.

A scoring is stored like a run, in `scorings/<number>` inside the run's folder, and made by the same engine: responses come
from the run's journal. The original results stay.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import InvalidOption, OutputError, UnknownName, UserError
from assay.core.progress import RunProgress
from assay.core.records.agents import AgentEvent
from assay.core.records.responses import Response
from assay.core.records.specs import FilterStep, MetricSpec, PipelineSpec, TaskSpec
from assay.engine import run as engine
from assay.engine.planning.manifests.manifest import write_manifest
from assay.engine.planning.manifests.manifest_diff import compare_manifests, list_scoring_changes
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.planning.setup.recorded_model import NOT_ASKED
from assay.engine.results.run_facts import collect_facts
from assay.models.reasoning import split_known_format
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.scoring.scorer import Scorer
from assay.store.cache.response_cache import ResponseSource
from assay.store.journal.journal import Journal
from assay.store.runs.run import SCORINGS_FOLDER, Run
from assay.user_code.executor import Executor

__all__ = ["Scoring", "ScoringSelection", "rescore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSelection:
    """What to score again; empty means everything."""

    tasks: Sequence[str] = ()
    filters: Sequence[str] = ()
    metrics: Sequence[str] = ()
    reasoning: Literal["", "keep", "strip"] = ""
    """`keep`: score the reasoning as part of the answer; `strip`: remove reasoning that is still in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """A run that was scored again."""

    run: Run
    """The results, as a run."""

    changed: Mapping[str, Sequence[str]]
    """Task -> filters and metrics that changed since the run."""

    notes: tuple[str, ...] = ()
    """Other changes that may matter."""

    changed_documents: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """(task, filter, metric) -> number of documents whose score changed."""


Manifests = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The manifest of the run, and the manifest now."""


async def rescore(
    run: Run,
    manifests: Manifests,
    whole: Plan,
    wanted: ScoringSelection,
    cache: ResponseSource | None,
    executor: Executor,
    folder: Path | None = None,
) -> Scoring:
    """Score a run again, into a new folder or into `folder`.

    `whole` is the plan of the run with its tasks as they are now and a `RecordedModel`.

    Raises:
        UserError: The prompts changed, so the recorded responses do not apply.
    """
    plan = _select(whole, run, wanted)
    place = folder or _make_folder(run.folder)
    plan = replace(plan, folder=place)
    try:
        journal = Journal.open_for_writing(place)
        try:
            changed, notes = _list_changes(manifests, plan), _list_notes(*manifests)
            await _score(
                journal,
                run,
                manifests[1],
                plan,
                {"changed": changed, "notes": list(notes), **_describe_scoring(run, wanted)},
                _RunAnswers(run.journal, plan.model_digest, cache, wanted.reasoning),
                executor,
            )
        finally:
            journal.close()
        scored = type(run)(place)
        return Scoring(
            run=scored,
            changed=changed,
            notes=notes,
            changed_documents=_count_changed_documents(plan, run, scored),
        )
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _describe_scoring(run: Run, wanted: ScoringSelection) -> dict[str, Any]:
    changes = [*wanted.filters, *wanted.metrics]
    if wanted.reasoning:
        changes.append(f"reasoning: {wanted.reasoning}")
    return {"of": run.id, "at": time.time(), "wanted": changes}


def _list_changes(manifests: Manifests, plan: Plan) -> dict[str, list[str]]:
    """Return the filters and metrics of each task that changed since the run."""
    then, now = (manifest["tasks"] for manifest in manifests)
    changes = {name: list(list_scoring_changes(then[name], now[name])) for name in plan.tasks if name in then}
    return {name: what for name, what in changes.items() if what}


async def _score(
    journal: Journal,
    run: Run,
    manifest: Mapping[str, Any],
    plan: Plan,
    about: Mapping[str, Any],
    answers: _RunAnswers,
    executor: Executor,
) -> None:
    """Run the engine on the recorded responses."""
    started = time.monotonic()
    journal.set_facts({**collect_facts(plan), "manifest": manifest, "scoring": about}).result()
    write_manifest(plan.folder, manifest)
    await engine.run(plan, journal, answers, RunProgress(), executor)
    await asyncio.to_thread(_check_same_questions, plan, run.journal, journal)
    journal.set_facts({"ended": time.time(), "seconds": time.monotonic() - started}).result()


class _RunAnswers:
    """The responses of a run; for judges, also those in the shared cache."""

    def __init__(
        self,
        journal: Journal,
        model_digest: str,
        cache: ResponseSource | None,
        reasoning: Literal["", "keep", "strip"] = "",
    ) -> None:
        self._journal = journal
        self._model = model_digest[:16]
        self._cache = cache
        self._reasoning = reasoning

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        found = self._journal.find(fingerprints, tokens=tokens)
        if self._reasoning:
            change = _keep_reasoning if self._reasoning == "keep" else _strip_reasoning
            found = {
                mark: change(response) if mark.startswith(self._model) else response
                for mark, response in found.items()
            }
        if self._cache is not None:
            others = [mark for mark in fingerprints if mark not in found and not mark.startswith(self._model)]
            found |= self._cache.find(others) if others else {}
        return found

    def read_agent_events(self, task: str, document: int) -> Mapping[int, Sequence[AgentEvent]]:
        """Return what the agents of the run did: their tools do not run again."""
        return self._journal.read_agent_events(task, document)

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        if self._cache is not None:
            return self._cache.add(responses, model=model)
        done: Future[None] = Future()
        done.set_result(None)
        return done


def _keep_reasoning(response: Response) -> Response:
    """Return a response whose answer contains its reasoning, as a harness that does not separate it sees it."""
    if not response.reasoning or not isinstance(response.value, str):
        return response
    return replace(response, value=f"<think>{response.reasoning}</think>{response.value}", reasoning=None)


def _strip_reasoning(response: Response) -> Response:
    """Return a response without the reasoning in its answer, for runs that did not separate it."""
    if response.reasoning is not None or not isinstance(response.value, str):
        return response
    found = split_known_format(response.value)
    return replace(response, value=found.answer, reasoning=found.reasoning)


# --- what is scored ------------------------------------------------------------------------------------


def _select(plan: Plan, run: Run, wanted: ScoringSelection) -> Plan:
    """Return the plan with the selected tasks, filters and metrics."""
    for task in wanted.tasks:
        if task not in run.tasks or task not in plan.tasks:
            raise UnknownName(
                f"the run has no task `{task}`", where="--tasks", hint=f"it has: {', '.join(run.tasks)}"
            )
    names = [name for name in plan.tasks if name in (wanted.tasks or run.tasks)]
    tasks = {name: _select_scoring(plan.tasks[name], wanted) for name in names}
    groups = {name: group for name, group in plan.groups.items() if set(plan.list_tasks(name)) <= set(tasks)}
    top = [name for name in plan.top if name in tasks or name in groups]
    inside = {leaf for name in groups for leaf in plan.list_tasks(name)}
    top += [name for name in tasks if name not in top and name not in inside]
    return replace(plan, tasks=tasks, groups=groups, top=tuple(top))


def _select_scoring(planned: PlannedTask, wanted: ScoringSelection) -> PlannedTask:
    if not wanted.filters and not wanted.metrics:
        return planned
    spec = planned.spec
    if wanted.filters:
        spec = replace(spec, pipelines=tuple(_find_pipeline(spec, planned, name) for name in wanted.filters))
    if wanted.metrics:
        if spec.process_results is not None:
            raise InvalidOption(
                f"the metrics of `{spec.name}` come from its `process_results`",
                where="--metric",
                hint="omit --metric, or select other tasks with --tasks",
            )
        spec = replace(spec, metrics=tuple(_find_metric(spec, planned, name) for name in wanted.metrics))
    return replace(planned, scorer=Scorer.from_spec(spec))


def _find_pipeline(spec: TaskSpec, planned: PlannedTask, name: str) -> PipelineSpec:
    """Return the task's pipeline of this name, or a pipeline of the registered filter and `take_first`."""
    own = {pipeline.name: pipeline for pipeline in spec.pipelines}
    if name in own:
        return own[name]
    if name in FILTERS:
        steps = (FilterStep(function=name, where="--filter"), FilterStep(function="take_first"))
        return PipelineSpec(name=name, steps=steps if name != "take_first" else steps[1:])
    known = [*(pipeline.name for pipeline in planned.scorer.pipelines), *FILTERS.names()]
    raise UnknownName.of("filter", name, known, where="--filter")


def _find_metric(spec: TaskSpec, planned: PlannedTask, name: str) -> MetricSpec:
    """Return the task's entry for this metric, or the registered metric."""
    own = {metric.name: metric for metric in spec.metrics}
    if name in own:
        return own[name]
    if name in METRICS:
        return MetricSpec(metric=name, where="--metric")
    raise UnknownName.of("metric", name, [*planned.scorer.metrics, *METRICS.names()], where="--metric")


# --- where it goes, and what became of it --------------------------------------------------------------


def _make_folder(folder: Path) -> Path:
    """Create `scorings/<number>` at once, so that two scorings do not collide."""
    number = 1 + max((int(path.name) for path in (folder / SCORINGS_FOLDER).glob("[0-9]*")), default=0)
    while True:
        try:
            (folder / SCORINGS_FOLDER / str(number)).mkdir(parents=True)
            return folder / SCORINGS_FOLDER / str(number)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise OutputError(
                f"cannot write into `{folder}`: {error.strerror}", hint="--dry_run writes nothing"
            ) from None


def _check_same_questions(plan: Plan, before: Journal, after: Journal) -> None:
    """Raise if documents with a response have none now: their prompts changed."""
    unfinished = not before.is_finished()
    for task in plan.tasks:
        ended = {document: outcome for document, outcome, _ in before.read_outcomes(task)}
        lost = [
            document
            for document, _, why in after.read_outcomes(task, only="failed")
            if why.startswith(NOT_ASKED)
            and (ended[document] != "failed" if document in ended else not unfinished)
        ]
        if lost:
            raise UserError(
                f"{len(lost)} of {plan.tasks[task].documents} documents of `{task}` have different prompts than "
                f"when the run was made, so its responses do not apply (first: document {lost[0]})",
                hint="run `assay verify` to see what changed, `assay run --from` to ask again, or select other tasks with --tasks",
            )


def _list_notes(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return other changes: data, helper files, judges, Assay's scoring code."""
    drifts = compare_manifests(then, now)
    return tuple(f"{drift.kind}: {drift.what}" for drift in drifts if drift.kind in ("data", "code", "model"))


def _count_changed_documents(plan: Plan, before: Run, after: Run) -> dict[tuple[str, str, str], int]:
    """Count the documents whose score changed, by metric."""
    counts: dict[tuple[str, str, str], int] = {}
    for task in plan.tasks:
        for old, new in _pair_verdicts(before.journal.read_verdicts(task), after.journal.read_verdicts(task)):
            for key, value in new.items():
                if key in old and old[key] != value:
                    counts[(task, *key)] = counts.get((task, *key), 0) + 1
    return counts


Verdicts = Iterator[tuple[str, str, int, str, Any]]


def _pair_verdicts(before: Verdicts, after: Verdicts) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
    """Yield the old and new verdicts of each document, in document order."""
    old = groupby(before, key=lambda row: row[2])
    known: tuple[int, dict[Any, Any]] = (-1, {})
    for document, rows in groupby(after, key=lambda row: row[2]):
        while known[0] < document:
            following = next(old, None)
            if following is None:
                known = (1 << 62, {})
                break
            known = (following[0], {(row[0], row[1]): (row[3], row[4]) for row in following[1]})
        if known[0] == document:
            yield known[1], {(row[0], row[1]): (row[3], row[4]) for row in rows}
