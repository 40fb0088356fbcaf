"""Statistics over the documents of a task: the distribution of scores, scores by category, a sample of documents.

They are collected in one pass, a few thousand documents at a time, so that memory use does not depend on the task's size.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from assay.core.records.verdicts import Estimate
from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.numerics.distributions import t_quantile
from assay.store.journal.rows import decode_verdict_value, parse_json
from assay.store.runs.run import Run
from assay.viewer.charts import CategoryMark, HistogramBar

__all__ = [
    "DocumentStatistics",
    "SampledDocument",
    "classify_document",
    "collect_document_statistics",
    "find_category_fields",
]

_BATCH_SIZE = 2000
_MAX_INSPECTED = 400
_MAX_CATEGORIES = 40
_BINS = 20
_CATEGORY_FIELDS = (
    "category", "subject", "topic", "subcategory", "type", "task_type", "question_type", "kind", "domain", "level",
    "difficulty", "language", "lang", "subset", "source", "split", "task_name", "field", "subfield", "discipline",
)  # fmt: skip
"""Fields that usually contain a document's category, the most likely first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDocument:
    """A document chosen as an example of its kind."""

    document: int
    kind: str
    """right, wrong, partly right; else the document's ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentStatistics:
    """The statistics of one task."""

    task: str
    metric: str
    """The first metric of the task that scores single documents; empty if there is none."""

    pipeline: str
    histogram: tuple[HistogramBar, ...]
    field: str
    """The field that contains the categories; empty if none was found."""

    categories: tuple[CategoryMark, ...]
    """The largest category first."""

    samples: tuple[SampledDocument, ...]
    """Example documents, alternating between kinds: wrong and unscored ones first."""

    share: bool
    """Whether every score lies between 0 and 1."""

    higher_is_better: bool = True
    """Whether a higher score is better."""


def collect_document_statistics(
    run: Run, task: str, *, field: str | None = None, sample: int = 0, seed: int = 0
) -> DocumentStatistics:
    """Read every document of a task once and return its statistics.

    `field`: the field to group by; None searches for a field that looks like a category, "" groups by none.
    `sample`: how many example documents to choose, some of each kind (wrong, failed, right, …). The seed decides which.
    """
    main_metric = _find_main_metric(run, task)
    if field is None:
        field = next(iter(find_category_fields(run, task)), "")
    accumulator = _Accumulator(
        seed=seed,
        sample=sample,
        higher_is_better=main_metric is None or main_metric.higher_is_better is not False,
    )
    with run.journal.report_decode_errors():
        for batch in _iterate_batches(run, task, field):
            verdicts = parse_json(f"[{','.join(row[2] or '[]' for row in batch)}]")
            for row, document_verdicts in zip(batch, verdicts, strict=True):
                value = _find_score(document_verdicts, main_metric) if main_metric is not None else None
                accumulator.add(row[0], row[1] or "open", value, row[3] if field else None)
    return DocumentStatistics(
        task=task,
        metric="" if main_metric is None else main_metric.metric,
        pipeline="" if main_metric is None else main_metric.pipeline,
        histogram=accumulator.build_histogram(),
        field=field if accumulator.categories else "",
        categories=accumulator.build_category_marks(),
        samples=accumulator.pick_samples(),
        share=accumulator.share,
        higher_is_better=accumulator.higher_is_better,
    )


def classify_document(outcome: str, value: float | None, higher_is_better: bool = True) -> str:
    """Return right, wrong or partly right for a scored document, else how it ended.

    >>> classify_document("scored", 1.0), classify_document("truncated", 0.0)
    ('right', 'truncated')
    """
    if outcome != "scored" or value is None:
        return outcome
    if value in (0.0, 1.0):
        return "right" if (value == 1.0) == higher_is_better else "wrong"
    return "partly right"


def find_category_fields(run: Run, task: str) -> list[str]:
    """Return fields with few enough values to be categories, the most likely first."""
    seen: dict[str, set[Any]] = {name: set() for name in _CATEGORY_FIELDS}
    count = 0
    for content in run.journal.read_fields(task, limit=_MAX_INSPECTED):
        count += 1
        fields = json.loads(content)
        for name in _CATEGORY_FIELDS:
            value = fields.get(name) if isinstance(fields, dict) else None
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                seen[name].add(value)
    return [name for name, values in seen.items() if 2 <= len(values) <= min(_MAX_CATEGORIES, count // 2)]


def _find_main_metric(run: Run, task: str) -> Estimate | None:
    """Return the first estimate of the task, or a placeholder while the run is unfinished."""
    return next((one for one in run.estimates if one.task == task), None) or _find_unfinished_metric(
        run, task
    )


def _find_unfinished_metric(run: Run, task: str) -> Estimate | None:
    facts = run.tasks.get(task, {})
    metrics, pipelines = facts.get("metrics") or [], facts.get("pipelines") or []
    if not metrics or not pipelines:
        return None
    return Estimate(task=task, metric=metrics[0], pipeline=pipelines[0], value=None)


def _iterate_batches(run: Run, task: str, field: str) -> Iterator[list[tuple[Any, ...]]]:
    rows = run.journal.read_verdicts_with_field(task, field)
    while batch := list(islice(rows, _BATCH_SIZE)):
        yield batch


def _find_score(document_verdicts: Sequence[Sequence[Any]], main_metric: Estimate) -> float | None:
    for pipeline, metric, kind, value, _ in document_verdicts:
        if metric == main_metric.metric and pipeline == main_metric.pipeline and kind == "score":
            found = decode_verdict_value(value)
            return float(found) if isinstance(found, (int, float)) else None
    return None


@dataclass(slots=True)
class _RunningMean:
    """The sums needed for a mean and its confidence interval."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    binary: bool = True

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value * value
        self.binary = self.binary and value in (0.0, 1.0)

    def to_category_mark(self, name: str) -> CategoryMark:
        mean = self.total / self.count
        low: float | None = None
        high: float | None = None
        if self.binary:
            interval = wilson_interval(self.total, self.count)
            low, high = interval.low, interval.high
        elif self.count > 1:
            variance = max(0.0, (self.squares - self.count * mean * mean) / (self.count - 1))
            half = t_quantile(0.975, self.count - 1) * math.sqrt(variance / self.count)
            low, high = mean - half, mean + half
        return CategoryMark(name=name, value=mean, low=low, high=high, documents=self.count)


@dataclass(slots=True)
class _Accumulator:
    """Accumulates the statistics document by document."""

    seed: int
    sample: int
    higher_is_better: bool
    values: dict[float, int] = field(default_factory=dict)
    """Documents by score; by rounded score once there are many different ones."""

    categories: dict[str, _RunningMean] = field(default_factory=dict)
    kinds: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    """The number of documents of each kind, and a uniform sample of them."""

    random: random.Random = field(init=False)
    low: float = math.inf
    high: float = -math.inf

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def share(self) -> bool:
        return self.low >= 0 and self.high <= 1

    def add(self, document: int, outcome: str, value: float | None, category: Any) -> None:
        if value is not None and math.isfinite(value):
            self.low, self.high = min(self.low, value), max(self.high, value)
            kept = value if value in self.values or len(self.values) < 500 else float(f"{value:.2g}")
            self.values[kept] = self.values.get(kept, 0) + 1
            if category is not None and (category in self.categories or len(self.categories) < 1000):
                self.categories.setdefault(str(category), _RunningMean()).add(value)
        if self.sample:
            self._sample(document, classify_document(outcome, value, self.higher_is_better))

    def _sample(self, document: int, kind: str) -> None:
        """Keep a uniform sample of each kind (reservoir sampling)."""
        seen, chosen = self.kinds.setdefault(kind, (0, []))
        if len(chosen) < self.sample:
            chosen.append(document)
        elif (index := self.random.randrange(seen + 1)) < self.sample:
            chosen[index] = document
        self.kinds[kind] = (seen + 1, chosen)

    def pick_samples(self) -> tuple[SampledDocument, ...]:
        """Return samples of each kind in turns: wrong and unscored before right."""
        order = sorted(
            self.kinds, key=lambda kind: (kind in ("right", "scored", "open"), kind != "wrong", kind)
        )
        turns = [
            SampledDocument(document=sorted(chosen)[index], kind=kind)
            for index in range(self.sample)
            for kind in order
            if index < len(chosen := self.kinds[kind][1])
        ]
        return tuple(turns[: self.sample])

    def build_category_marks(self) -> tuple[CategoryMark, ...]:
        if len(self.categories) < 2:
            return ()
        largest = sorted(self.categories.items(), key=lambda item: (-item[1].count, item[0]))
        return tuple(sums.to_category_mark(name) for name, sums in largest[:_MAX_CATEGORIES])

    def build_histogram(self) -> tuple[HistogramBar, ...]:
        if len(self.values) <= _BINS // 2:
            return tuple(
                HistogramBar(low=value, high=value, documents=count)
                for value, count in sorted(self.values.items())
            )
        step = (self.high - self.low) / _BINS
        counts = [0] * _BINS
        for value, count in self.values.items():
            counts[min(_BINS - 1, max(0, int((value - self.low) / step)))] += count
        return tuple(
            HistogramBar(low=self.low + index * step, high=self.low + (index + 1) * step, documents=count)
            for index, count in enumerate(counts)
        )
