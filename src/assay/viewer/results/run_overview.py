"""An overview of a run for pages, reports and notebooks: scores, tasks, settings, throughput and notes as plain records.

Building it is fast for runs of any size. Statistics that read every document are in `viewer/documents/statistics.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.records.verdicts import Estimate
from assay.store.runs.run import SCORINGS_FOLDER, Run
from assay.store.runs.usage import UsageTotals
from assay.viewer.charts import OutcomeBar, ScoreMark, Throughput
from assay.viewer.number_format import format_number
from assay.viewer.results.notes import format_lock, format_notes, format_outcome_notes
from assay.viewer.results.score_rows import iterate_breakdown, iterate_score_rows
from assay.viewer.results.throughput import measure_throughput

__all__ = [
    "RunOverview",
    "ScoreRow",
    "TaskOverview",
    "build_outcome_bars",
    "build_run_overview",
    "build_score_marks",
    "is_share",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One row of the table of results."""

    name: str
    """The task or group."""

    label: str
    """The alias, or the name."""

    depth: int
    group: bool
    estimate: Estimate | None
    """None for a group without an aggregate."""

    n_shot: Any = None
    is_first: bool = True
    """Whether it is the first row of its task."""

    @property
    def value(self) -> float | None:
        """The value as a float; None if it is not a number."""
        value = None if self.estimate is None else self.estimate.value
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def text(self) -> str:
        """The formatted value."""
        return "" if self.estimate is None else format_number(self.estimate.value)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(name, number) of each part of a value that is a mapping."""
        return [] if self.estimate is None else list(iterate_breakdown(self.estimate.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOverview:
    """One task of a run."""

    name: str
    label: str
    documents: int
    """The number of documents in the run."""

    original: int | None
    """The number of documents in the dataset."""

    n_shot: Any
    version: Any
    output_type: str
    outcomes: Mapping[str, int]
    """Documents by ending (`ENDINGS`); `open` for those not processed yet."""

    spent: UsageTotals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """The overview of a run."""

    id: str
    model: str
    finished: bool
    started: float | None
    seconds: float | None
    scores: tuple[ScoreRow, ...]
    tasks: tuple[TaskOverview, ...]
    settings: tuple[tuple[str, str], ...]
    """(name, value) of options that differ from the defaults, of versions and of hardware."""

    throughput: Throughput | None
    spent: UsageTotals
    spent_by_judge: Mapping[str, UsageTotals]
    notes: tuple[str, ...]
    """The notes below the table: repeats, warnings, usage, documents without a score."""

    @property
    def documents(self) -> int:
        """The number of documents of all tasks."""
        return sum(task.documents for task in self.tasks)


def build_run_overview(run: Run) -> RunOverview:
    """Build the overview of a run without reading single documents."""
    spent_by_task = run.spent_by_task
    tasks = tuple(
        TaskOverview(
            name=name,
            label=str(facts.get("alias") or name),
            documents=int(facts.get("documents") or 0),
            original=facts.get("original"),
            n_shot=facts.get("n_shot"),
            version=facts.get("version"),
            output_type=str(facts.get("output_type", "")),
            outcomes=_count_outcomes(run, name, int(facts.get("documents") or 0)),
            spent=spent_by_task.get(name),
        )
        for name, facts in run.tasks.items()
    )
    is_rescored = run.folder.parent.name == SCORINGS_FOLDER
    return RunOverview(
        id=f"{run.folder.parents[1].name} (scoring {run.id})" if is_rescored else run.id,
        model=run.model,
        finished=run.finished,
        started=run.facts.get("started"),
        seconds=None if is_rescored else run.facts.get("seconds"),  # a later scoring has no model time
        scores=tuple(_build_score_rows(run)),
        tasks=tasks,
        settings=tuple(_iterate_settings(run)),
        throughput=measure_throughput(run),
        spent=run.spent,
        spent_by_judge=run.spent_by_judge,
        notes=(*format_notes(run), *format_outcome_notes(run)),
    )


def build_score_marks(facts: RunOverview, *, run: str = "", first_only: bool = False) -> list[ScoreMark]:
    """Return the scores of a run for a chart; `first_only`: only the first metric of each task and group."""
    marks = []
    for row in facts.scores:
        estimate, value = row.estimate, row.value
        if estimate is None or value is None or (first_only and not row.is_first):
            continue
        low, high = estimate.interval or (None, None)
        bar = "95 % interval"
        if low is None and estimate.stderr:  # corpus metrics have a standard error only
            low, high = value - 1.96 * estimate.stderr, value + 1.96 * estimate.stderr
            bar = "± 1.96 standard errors"
        whole = estimate.scored + estimate.unscored + estimate.failed
        pipeline = "" if estimate.pipeline in ("", "none") else f" ({estimate.pipeline})"
        marks.append(
            ScoreMark(
                name=row.label,
                metric=f"{estimate.metric}{pipeline}",
                value=value,
                low=low,
                high=high,
                interval_label=bar,
                run=run,
                group=row.group,
                depth=row.depth,
                share=is_share(estimate),
                higher_is_better=estimate.higher_is_better,
                note=f"{estimate.scored} of {whole} documents scored" if whole else "",
            )
        )
    return marks


def build_outcome_bars(facts: RunOverview) -> list[OutcomeBar]:
    """Return the outcomes of each task for a chart."""
    return [OutcomeBar(name=task.label, counts=task.outcomes) for task in facts.tasks]


def is_share(estimate: Estimate) -> bool:
    """Whether a value and its interval lie between 0 and 1, and lower is not better.

    >>> is_share(Estimate(task="t", metric="acc", pipeline="none", value=0.5, higher_is_better=True))
    True
    """
    value = estimate.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or estimate.higher_is_better is False:
        return False
    return all(-1e-9 <= end <= 1 + 1e-9 for end in (value, *(estimate.interval or ())))


def _build_score_rows(run: Run) -> Iterator[ScoreRow]:
    last = None
    for depth, name, facts, estimate in iterate_score_rows(run):
        yield ScoreRow(
            name=name,
            label=str(facts.get("alias") or name),
            depth=depth,
            group=name in run.groups,
            estimate=estimate,
            n_shot=facts.get("n_shot"),
            is_first=name != last,
        )
        last = name


def _count_outcomes(run: Run, task: str, documents: int) -> dict[str, int]:
    counts = run.outcomes(task)
    left = documents - sum(counts.values())
    return {**counts, "open": left} if left > 0 and not run.finished else counts


_SHOWN_OPTIONS = (
    "model",
    "model_args",
    "num_fewshot",
    "limit",
    "samples",
    "gen_kwargs",
    "reasoning_effort",
    "thinking_budget",
    "include_reasoning",
    "apply_chat_template",
    "fewshot_as_multiturn",
    "system_instruction",
    "mc_as_generation",
    "judge",
    "judge_args",
    "seed",
    "batch_size",
    "device",
    "stop_when",
    "max_cost",
    "sandbox",
    "predict_only",
    "reasoning_tags",
    "include_path",
    "data_root",
)
_ALWAYS_SHOWN = ("model", "seed", "num_fewshot")


def _iterate_settings(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the options that differ from the defaults, then versions, hardware and the model's identity."""
    from assay.core.options.run_spec import RunSpec

    spec, usual = run.facts.get("spec", {}), RunSpec()
    for name in _SHOWN_OPTIONS:
        value = spec.get(name)
        default = getattr(usual, name, None)
        if value is None or (name not in _ALWAYS_SHOWN and _is_default(value, default)):
            continue
        yield f"--{name}", _format_setting(value)
    if lock := format_lock(run.facts.get("lock")):
        yield "lockfile", lock
    manifest = run.facts.get("manifest")
    manifest = manifest if isinstance(manifest, dict) else {}
    versions, hardware = manifest.get("versions", {}), manifest.get("hardware", {})
    for name in ("assay", "python", "torch", "transformers", "vllm"):
        if versions.get(name):
            yield name, str(versions[name])
    for name in ("platform", "processor", "gpus"):
        if hardware.get(name):
            yield name, _format_setting(hardware[name])
    identity = run.facts.get("identity", {})
    for name in ("revision", "dtype", "weights_sha256", "template_sha256"):
        if identity.get(name):
            yield name.replace("_sha256", ""), str(identity[name])[:64]


def _is_default(value: Any, default: Any) -> bool:
    return bool(value == default) or (not value and not default) or _to_list(value) == _to_list(default)


def _to_list(value: Any) -> Any:
    """Convert tuples to lists: options stored as JSON have lists instead of tuples."""
    return list(value) if isinstance(value, (list, tuple)) else value


def _format_setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
