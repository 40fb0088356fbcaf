"""What pages, reports and tables say of a run, collected once: plain records, ready to be drawn.

Cheap whatever the size of the run: what takes a look at every document is in `viewer/document_facts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.verdicts import Estimate
from assay.store.runs import SCORINGS, Run
from assay.store.usage import Spent
from assay.viewer.charts import OutcomeBar, Pace, ScoreMark
from assay.viewer.pace import run_pace
from assay.viewer.tables import accounts, breakdown, number, remarks, rows_of

__all__ = ["RunFacts", "ScoreRow", "TaskFacts", "is_share", "outcome_bars", "run_facts", "score_marks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the table of results."""

    name: str
    """The task or group."""

    label: str
    """What people call it."""

    depth: int
    group: bool
    estimate: Estimate | None
    """None for a group that has no number of its own."""

    n_shot: Any = None
    first: bool = True
    """Whether it is the first line of its task."""

    @property
    def value(self) -> float | None:
        """The number, where it is one."""
        value = None if self.estimate is None else self.estimate.value
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def shown(self) -> str:
        """The number as people read it."""
        return "" if self.estimate is None else number(self.estimate.value)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(name, number) of each part, where the number is a breakdown."""
        return [] if self.estimate is None else list(breakdown(self.estimate.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """One task of a run."""

    name: str
    label: str
    documents: int
    """How many were asked for."""

    original: int | None
    """How many the dataset has."""

    n_shot: Any
    version: Any
    output_type: str
    outcomes: Mapping[str, int]
    """By the words of `ENDINGS`; `open` for those not reached yet."""

    spent: Spent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run, summed up."""

    id: str
    model: str
    finished: bool
    started: float | None
    seconds: float | None
    scores: tuple[ScoreRow, ...]
    tasks: tuple[TaskFacts, ...]
    settings: tuple[tuple[str, str], ...]
    """(name, value) of what was asked for otherwise than by default, and of where it ran."""

    pace: Pace | None
    spent: Spent
    spent_by_judge: Mapping[str, Spent]
    notes: tuple[str, ...]
    """What stands under the table: cost, judges, scores of another kind, documents that were not scored."""

    @property
    def documents(self) -> int:
        """How many documents it asks."""
        return sum(task.documents for task in self.tasks)


def run_facts(run: Run) -> RunFacts:
    """Everything but what single documents say."""
    spent_by_task = run.spent_by_task
    tasks = tuple(
        TaskFacts(
            name=name,
            label=str(facts.get("alias") or name),
            documents=int(facts.get("documents") or 0),
            original=facts.get("original"),
            n_shot=facts.get("n_shot"),
            version=facts.get("version"),
            output_type=str(facts.get("output_type", "")),
            outcomes=_outcomes(run, name, int(facts.get("documents") or 0)),
            spent=spent_by_task.get(name),
        )
        for name, facts in run.tasks.items()
    )
    again = run.folder.parent.name == SCORINGS
    return RunFacts(
        id=f"{run.folder.parents[1].name} (scoring {run.id})" if again else run.id,
        model=run.model,
        finished=run.finished,
        started=run.facts.get("started"),
        seconds=None if again else run.facts.get("seconds"),  # of a later scoring: not the model's time
        scores=tuple(_score_rows(run)),
        tasks=tasks,
        settings=tuple(_settings(run)),
        pace=run_pace(run),
        spent=run.spent,
        spent_by_judge=run.spent_by_judge,
        notes=(*remarks(run), *accounts(run)),
    )


def score_marks(facts: RunFacts, *, run: str = "", main: bool = False) -> list[ScoreMark]:
    """The numbers of a run for a chart; `main`: only the first one of each task and group."""
    marks = []
    for row in facts.scores:
        estimate, value = row.estimate, row.value
        if estimate is None or value is None or (main and not row.first):
            continue
        low, high = estimate.interval or (None, None)
        bar = "95 % interval"
        if low is None and estimate.stderr:  # of a corpus metric only the standard error is known
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
                bar=bar,
                run=run,
                group=row.group,
                depth=row.depth,
                share=is_share(estimate),
                higher_is_better=estimate.higher_is_better,
                note=f"{estimate.scored} of {whole} documents scored" if whole else "",
            )
        )
    return marks


def outcome_bars(facts: RunFacts) -> list[OutcomeBar]:
    """How the documents of each task ended, for a chart."""
    return [OutcomeBar(name=task.label, counts=task.outcomes) for task in facts.tasks]


def is_share(estimate: Estimate) -> bool:
    """Whether a number belongs on a scale from 0 to 1: it is on it, with its interval, and more is not worse.

    >>> is_share(Estimate(task="t", metric="acc", pipeline="none", value=0.5, higher_is_better=True))
    True
    """
    value = estimate.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or estimate.higher_is_better is False:
        return False
    return all(-1e-9 <= end <= 1 + 1e-9 for end in (value, *(estimate.interval or ())))


def _score_rows(run: Run) -> Iterator[ScoreRow]:
    last = None
    for depth, name, facts, estimate in rows_of(run):
        yield ScoreRow(
            name=name,
            label=str(facts.get("alias") or name),
            depth=depth,
            group=name in run.groups,
            estimate=estimate,
            n_shot=facts.get("n_shot"),
            first=name != last,
        )
        last = name


def _outcomes(run: Run, task: str, documents: int) -> dict[str, int]:
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
_ALWAYS = ("model", "seed", "num_fewshot")


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    """What was asked for, then what it ran with."""
    from assay.core.runspec import RunSpec

    spec, usual = run.facts.get("spec", {}), RunSpec()
    for name in _SHOWN_OPTIONS:
        value = spec.get(name)
        default = getattr(usual, name, None)
        if value is None or (name not in _ALWAYS and _same(value, default)):
            continue
        yield f"--{name}", _setting(value)
    manifest = run.facts.get("manifest")
    manifest = manifest if isinstance(manifest, dict) else {}
    versions, hardware = manifest.get("versions", {}), manifest.get("hardware", {})
    for name in ("assay", "python", "torch", "transformers", "vllm"):
        if versions.get(name):
            yield name, str(versions[name])
    for name in ("platform", "processor", "gpus"):
        if hardware.get(name):
            yield name, _setting(hardware[name])
    identity = run.facts.get("identity", {})
    for name in ("revision", "dtype", "weights_sha256", "template_sha256"):
        if identity.get(name):
            yield name.replace("_sha256", ""), str(identity[name])[:64]


def _same(value: Any, default: Any) -> bool:
    return bool(value == default) or (not value and not default) or list_of(value) == list_of(default)


def list_of(value: Any) -> Any:
    """Sequences of either kind alike: what was kept as JSON has lists for tuples."""
    return list(value) if isinstance(value, (list, tuple)) else value


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
