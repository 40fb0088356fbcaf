"""`verify`: compare the prompts and scores of a run with what they would be now. Sends nothing, loads no weights."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.options.run_spec import RunSpec
from assay.core.records.documents import Document
from assay.core.secrets import redact_values
from assay.engine.planning.manifests.manifest import make_manifest
from assay.engine.planning.manifests.manifest_diff import ManifestChange, compare_manifests
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.planning.setup.model_setup import make_model_from_options
from assay.engine.results.agent_pins import compare_agent_pins
from assay.engine.results.rendered_documents import (
    cut_around_difference,
    index_requests,
    render_documents,
)
from assay.engine.results.rescore import ScoringSelection, rescore
from assay.store.journal import rows
from assay.store.runs.run import Run
from assay.user_code.executor import Executor

__all__ = ["Verification", "get_current_identity", "verify", "verify_scores"]

MAX_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What changed since a run, and what could not be checked."""

    changes: tuple[ManifestChange, ...]
    unchecked: tuple[str, ...]
    documents: int
    requests: int
    warnings: tuple[str, ...] = ()
    """Irregularities during the run itself."""

    lock: Any = None
    """A `LockStatus`, if the run has a lockfile."""


Identity = tuple[Mapping[str, str], str]
"""The identity of the model, and why it could not be determined."""


async def get_current_identity(spec: RunSpec, manifest: Mapping[str, Any]) -> Identity:
    """Return the current identity of the model, or the recorded one if it cannot be determined."""
    try:
        model = make_model_from_options(spec)
        return dict(redact_values(await model.identify())), ""
    except AssayError as error:
        return manifest["model"]["identity"], f"the model and its template: {error.what}"


def verify(run: Run, manifest: Mapping[str, Any], plan: Plan, identity: Identity) -> Verification:
    """Render every document of the run and compare; `plan` has the tasks as they are now."""
    now = make_manifest(plan)
    now["model"]["identity"] = identity[0]
    drifts = compare_manifests(manifest, now)
    documents = requests = 0
    for name, planned in plan.tasks.items():
        found = _compare_task(plan, planned, run)
        documents += found.documents
        requests += found.requests
        drifts += found.drifts(name)
    pin_changes, unchecked_pins = compare_agent_pins(plan, manifest)
    drifts += pin_changes
    agents = [name for name, planned in plan.tasks.items() if planned.spec.output_type.is_agent]
    unchecked = (
        *((identity[1],) if identity[1] else ()),
        *unchecked_pins,
        *(f"the prompts of {name}: they depend on what the agent did" for name in agents),
    )
    return Verification(
        changes=tuple(drifts),
        unchecked=unchecked,
        documents=documents,
        requests=requests,
        warnings=tuple(_list_warnings(run)),
    )


async def verify_scores(
    run: Run, manifest: Mapping[str, Any], plan: Plan, before: Verification, executor: Executor
) -> Verification:
    """Score the stored responses again, and add scores and results that differ: they were edited, or depend on chance.

    Tasks whose scores need a judge or execute programs are listed as unchecked. A run whose tasks changed is not scored.
    """
    if (
        before.documents == 0
        or plan.spec.predict_only
        or any(c.kind in _AFFECTS_SCORES for c in before.changes)
    ):
        return before
    unchecked = [
        f"the scores of {name}: they need judges or execute programs"
        for name, planned in plan.tasks.items()
        if not _can_score(plan, planned)
    ]
    names = [name for name, planned in plan.tasks.items() if _can_score(plan, planned) and name in run.tasks]
    changes: list[ManifestChange] = []
    if names:
        with tempfile.TemporaryDirectory(prefix="assay-verify-") as folder:
            scoring = await rescore(
                run, (manifest, manifest), plan, ScoringSelection(tasks=names), None, executor, Path(folder)
            )
            try:
                changes += _compare_scores(plan, scoring.changed_documents)
                changes += _compare_results(run, scoring.run) if not plan.spec.stop_when else []
            finally:
                scoring.run.close()
    return replace(before, changes=(*before.changes, *changes), unchecked=(*before.unchecked, *unchecked))


_AFFECTS_SCORES = ("data", "prompt", "task", "code", "settings")


def _can_score(plan: Plan, planned: PlannedTask) -> bool:
    may_call_services = planned.uses_services and (plan.judges or plan.spec.confirm_run_unsafe_code)
    return not (planned.spec.unsafe_code or planned.scorer.panels or may_call_services)


def _compare_scores(plan: Plan, changed: Mapping[tuple[str, str, str], int]) -> Iterator[ManifestChange]:
    for (task, pipeline, metric), count in changed.items():
        what = f"{task}: stored scores do not follow from the stored responses ({metric}, filter {pipeline})"
        yield ManifestChange(kind="scores", what=what, count=count, total=plan.tasks[task].documents)


def _compare_results(run: Run, scored: Run) -> Iterator[ManifestChange]:
    """Compare the results of a finished run; those of tasks that were not scored again are skipped."""
    now = scored.results
    for task, results in run.results.items() if run.finished else ():
        for name, value in results.items():
            found = now.get(task, {}).get(name, value)
            if "_stderr," not in name and not _is_close(value, found):
                what = f"{task}: the stored result of {name} is {value}, the stored scores give {found}"
                yield ManifestChange(kind="scores", what=what)


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (
            math.isnan(one) and math.isnan(other)
        )
    return bool(one == other)


def _list_warnings(run: Run) -> Iterator[str]:
    """Yield a warning if a server changed its identity during the run."""
    for who, names in run.served.items():
        first, *others = names
        for name in others:
            whom = f"the judge `{who}`" if who else "the model"
            yield f"the server of {whom} identified itself as {name} in {names[name]} responses and as {first} in the others"


@dataclass(slots=True)
class _TaskDifferences:
    """Counts differences in the documents of one task, with examples."""

    documents: int = 0
    requests: int = 0
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, kind: str, what: str, document: int, was: Any, is_now: Any) -> None:
        key = (kind, what)
        self.counts[key] = self.counts.get(key, 0) + 1
        shown = self.examples.setdefault(key, [])
        if len(shown) < MAX_EXAMPLES:
            then, now = cut_around_difference(str(was), str(is_now))
            shown.append({"document": document, "then": then, "now": now})

    def drifts(self, task: str) -> list[ManifestChange]:
        return [
            ManifestChange(
                kind=kind,
                what=f"{task}: {what}",
                count=count,
                total=self.documents,
                examples=tuple(self.examples[kind, what]),
            )
            for (kind, what), count in self.counts.items()
        ]


def _compare_task(plan: Plan, planned: PlannedTask, run: Run) -> _TaskDifferences:
    """Compare each document in the journal with its current rendering."""
    differences = _TaskDifferences()
    stored = run.journal.read_documents(planned.task.name)
    then = next(stored, None)
    stopped = run.facts.get("stopped", {}).get(planned.task.name, {})
    asked_all = stopped.get("asked") == stopped.get("documents") or planned.documents != stopped["documents"]
    for document, target, requests in render_documents(plan, planned):
        while then is not None and then[0] < document.index:
            differences.documents += 1
            differences.add("data", "documents are gone", then[0], then[1], "")
            then = next(stored, None)
        if then is None or then[0] != document.index:
            if run.finished and asked_all:  # a stop rule leaves documents out
                shown = rows.encode_fields(document.fields)
                differences.add("data", "documents are new", document.index, "", shown)
            continue
        differences.documents += 1
        _compare_document(planned, differences, then, (document, target, requests))
        then = next(stored, None)
    for gone in [then, *stored] if then is not None else []:
        differences.documents += 1
        differences.add("data", "documents are gone", gone[0], gone[1], "")
    return differences


def _compare_document(
    planned: PlannedTask, differences: _TaskDifferences, then: Sequence[Any], now: tuple[Document, Any, Any]
) -> None:
    document, target, requests = now
    number, fields_then, target_then, requests_then = then
    fields = rows.encode_fields(document.fields)
    if fields != fields_then:
        differences.add("data", "documents changed", number, fields_then, fields)
    if rows.encode_target(target) != target_then:
        differences.add("task", "targets changed", number, target_then, rows.encode_target(target))
    asked = json.loads(requests_then)
    if isinstance(requests, str):
        if asked["requests"]:
            differences.add("prompt", "documents can no longer be rendered", number, "", requests)
        return
    if planned.spec.output_type.is_agent:  # the session builds the prompts while the agent works
        return
    before, after = index_requests(asked), index_requests(requests)
    differences.requests += len(after)
    if not planned.task.is_dialogue and before.keys() != after.keys():
        differences.add("prompt", "the number of requests changed", number, len(before), len(after))
        return
    for place, (kind, prompt, argument) in after.items():
        if place not in before:
            continue
        old_kind, old_prompt, old_argument = before[place]
        if prompt != old_prompt or kind != old_kind:
            differences.add("prompt", "prompts changed", number, old_prompt, prompt)
            return
        if kind == "generate":
            if not argument.startswith(old_argument):  # the journal has the beginning of the digest
                differences.add("settings", "generation settings changed", number, old_argument, argument)
                return
        elif argument != old_argument:
            differences.add("prompt", "continuations changed", number, old_argument, argument)
            return
