"""What the documents of a task say together: how their scores are spread, by category, and a sample worth a look.

One pass over the task, a few thousand documents at a time: memory stays flat however many there are.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from assay.core.verdicts import Estimate
from assay.stats.distributions import t_quantile
from assay.stats.intervals import wilson
from assay.store.rows import from_json, verdict_value
from assay.store.runs import Run
from assay.viewer.charts import CategoryMark, SpreadBar

__all__ = ["DocumentFacts", "Picked", "category_fields", "document_facts", "kind_of"]

_TOGETHER = 2000
_LOOKED_AT = 400
_MOST_CATEGORIES = 40
_BINS = 20
_NAMES = (
    "category", "subject", "topic", "subcategory", "type", "task_type", "question_type", "kind", "domain", "level",
    "difficulty", "language", "lang", "subset", "source", "split", "task_name", "field", "subfield", "discipline",
)  # fmt: skip
"""Fields that usually say what kind of document it is, the likeliest first."""

_QUERY = """
SELECT a.id - t.first, j.outcome, j.verdicts{field}
FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last LEFT JOIN judged j ON j.id = a.id
WHERE t.name = ? ORDER BY a.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """A document worth a look, and why."""

    document: int
    why: str
    """right, wrong, partly right; else how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFacts:
    """What one pass over a task's documents found."""

    task: str
    metric: str
    """The task's first metric that single documents have; empty where there is none."""

    pipeline: str
    spread: tuple[SpreadBar, ...]
    field: str
    """The field the categories are values of; empty where none was found."""

    categories: tuple[CategoryMark, ...]
    """The largest first."""

    worth: tuple[Picked, ...]
    """Documents worth a look, in turns of each kind: what went wrong first."""

    share: bool
    """Whether every score lies between 0 and 1."""

    upward: bool = True
    """Whether more is better."""


def document_facts(
    run: Run, task: str, *, field: str | None = None, sample: int = 0, seed: int = 0
) -> DocumentFacts:
    """Look at every document once.

    `field`: what to take apart; None looks for a field that says what kind of document it is, "" does without.
    `sample`: how many documents to pick, some of each kind (wrong, failed, right, …); the same for the same seed.
    """
    wanted = _main_metric(run, task)
    if field is None:
        field = next(iter(category_fields(run, task)), "")
    pass_ = _Pass(seed=seed, sample=sample, upward=wanted is None or wanted.higher_is_better is not False)
    with run.journal.decoding():
        for chunk in _chunks(run, task, field):
            verdicts = from_json(f"[{','.join(row[2] or '[]' for row in chunk)}]")
            for row, listed in zip(chunk, verdicts, strict=True):
                value = _score(listed, wanted) if wanted is not None else None
                pass_.see(row[0], row[1] or "open", value, row[3] if field else None)
    return DocumentFacts(
        task=task,
        metric="" if wanted is None else wanted.metric,
        pipeline="" if wanted is None else wanted.pipeline,
        spread=pass_.bars(),
        field=field if pass_.categories else "",
        categories=pass_.marks(),
        worth=pass_.chosen(),
        share=pass_.share,
        upward=pass_.upward,
    )


def kind_of(outcome: str, value: float | None, upward: bool = True) -> str:
    """What kind of document it is, in a word: right, wrong, partly right; else how it ended.

    >>> kind_of("scored", 1.0), kind_of("truncated", 0.0)
    ('right', 'truncated')
    """
    if outcome != "scored" or value is None:
        return outcome
    if value in (0.0, 1.0):
        return "right" if (value == 1.0) == upward else "wrong"
    return "partly right"


def category_fields(run: Run, task: str) -> list[str]:
    """Fields whose few values say what kind of document each is, the likeliest first."""
    rows = run.journal.query(
        "SELECT a.fields FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last"
        f" WHERE t.name = ? ORDER BY a.id LIMIT {_LOOKED_AT}",
        (task,),
    )
    seen: dict[str, set[Any]] = {name: set() for name in _NAMES}
    count = 0
    for (content,) in rows:
        count += 1
        fields = json.loads(content)
        for name in _NAMES:
            value = fields.get(name) if isinstance(fields, dict) else None
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                seen[name].add(value)
    return [name for name, values in seen.items() if 2 <= len(values) <= min(_MOST_CATEGORIES, count // 2)]


def _main_metric(run: Run, task: str) -> Estimate | None:
    """The first number of the task."""
    return next((one for one in run.estimates if one.task == task), None) or _unfinished_metric(run, task)


def _unfinished_metric(run: Run, task: str) -> Estimate | None:
    facts = run.tasks.get(task, {})
    metrics, pipelines = facts.get("metrics") or [], facts.get("pipelines") or []
    if not metrics or not pipelines:
        return None
    return Estimate(task=task, metric=metrics[0], pipeline=pipelines[0], value=None)


def _chunks(run: Run, task: str, field: str) -> Iterator[list[tuple[Any, ...]]]:
    path = "$." + ".".join(json.dumps(part, ensure_ascii=False) for part in field.split("."))
    query = _QUERY.format(field=", json_extract(a.fields, ?)" if field else "")
    rows = run.journal.query(query, (path, task) if field else (task,))
    while chunk := list(islice(rows, _TOGETHER)):
        yield chunk


def _score(listed: Sequence[Sequence[Any]], wanted: Estimate) -> float | None:
    for pipeline, metric, kind, value, _ in listed:
        if metric == wanted.metric and pipeline == wanted.pipeline and kind == "score":
            found = verdict_value(value)
            return float(found) if isinstance(found, (int, float)) else None
    return None


@dataclass(slots=True)
class _Sums:
    """Enough of some numbers for their mean and its interval."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    binary: bool = True

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value * value
        self.binary = self.binary and value in (0.0, 1.0)

    def mark(self, name: str) -> CategoryMark:
        mean = self.total / self.count
        low: float | None = None
        high: float | None = None
        if self.binary:
            interval = wilson(self.total, self.count)
            low, high = interval.low, interval.high
        elif self.count > 1:
            variance = max(0.0, (self.squares - self.count * mean * mean) / (self.count - 1))
            half = t_quantile(0.975, self.count - 1) * math.sqrt(variance / self.count)
            low, high = mean - half, mean + half
        return CategoryMark(name=name, value=mean, low=low, high=high, documents=self.count)


@dataclass(slots=True)
class _Pass:
    """What is kept while documents go by."""

    seed: int
    sample: int
    upward: bool
    values: dict[float, int] = field(default_factory=dict)
    """Documents by score, while there are few different ones; of many, by rounded score."""

    categories: dict[str, _Sums] = field(default_factory=dict)
    kinds: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    """How many documents of each kind went by, and a fair choice of them."""

    random: random.Random = field(init=False)
    low: float = math.inf
    high: float = -math.inf

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def share(self) -> bool:
        return self.low >= 0 and self.high <= 1

    def see(self, document: int, outcome: str, value: float | None, category: Any) -> None:
        if value is not None and math.isfinite(value):
            self.low, self.high = min(self.low, value), max(self.high, value)
            kept = value if value in self.values or len(self.values) < 500 else float(f"{value:.2g}")
            self.values[kept] = self.values.get(kept, 0) + 1
            if category is not None and (category in self.categories or len(self.categories) < 1000):
                self.categories.setdefault(str(category), _Sums()).add(value)
        if self.sample:
            self._pick(document, kind_of(outcome, value, self.upward))

    def _pick(self, document: int, kind: str) -> None:
        """A fair choice of as many documents of each kind as could be shown (reservoir sampling)."""
        seen, chosen = self.kinds.setdefault(kind, (0, []))
        if len(chosen) < self.sample:
            chosen.append(document)
        elif (at := self.random.randrange(seen + 1)) < self.sample:
            chosen[at] = document
        self.kinds[kind] = (seen + 1, chosen)

    def chosen(self) -> tuple[Picked, ...]:
        """A few of each kind, in turns: what went wrong before what went right."""
        order = sorted(
            self.kinds, key=lambda kind: (kind in ("right", "scored", "open"), kind != "wrong", kind)
        )
        turns = [
            Picked(document=sorted(chosen)[at], why=kind)
            for at in range(self.sample)
            for kind in order
            if at < len(chosen := self.kinds[kind][1])
        ]
        return tuple(turns[: self.sample])

    def marks(self) -> tuple[CategoryMark, ...]:
        if len(self.categories) < 2:
            return ()
        largest = sorted(self.categories.items(), key=lambda item: (-item[1].count, item[0]))
        return tuple(sums.mark(name) for name, sums in largest[:_MOST_CATEGORIES])

    def bars(self) -> tuple[SpreadBar, ...]:
        if len(self.values) <= _BINS // 2:
            return tuple(
                SpreadBar(low=value, high=value, documents=count)
                for value, count in sorted(self.values.items())
            )
        step = (self.high - self.low) / _BINS
        counts = [0] * _BINS
        for value, count in self.values.items():
            counts[min(_BINS - 1, max(0, int((value - self.low) / step)))] += count
        return tuple(
            SpreadBar(low=self.low + at * step, high=self.low + (at + 1) * step, documents=count)
            for at, count in enumerate(counts)
        )
