"""The records of a comparison, shared by tables, JSON, plots and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from assay.core.errors import InvalidOption
from assay.stats.comparisons.multiplicity import CORRECTIONS

__all__ = [
    "BLOCKING_KINDS",
    "CompareOptions",
    "Comparison",
    "ComparisonRow",
    "Flip",
    "Mismatch",
    "VariantDifference",
]


BLOCKING_KINDS = ("prompts", "judge", "scoring", "identity", "pairing")
"""Kinds of mismatches that leave open what causes a difference: prompts (also few-shot examples and chat template), judges,
definitions of metrics and filters, dtype, revision or quantisation of the same model, and documents without contents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What to compare, and at which level."""

    tasks: Sequence[str] = ()
    """Only these tasks; empty: all that both runs have."""

    metrics: Sequence[str] = ()
    """Only these metrics; empty: the first of each task."""

    cluster_by: str = ""
    """The field that identifies a cluster; empty: the task's cluster key."""

    category: str = ""
    """Also compare the documents of each value of this field."""

    correction: str = "holm"
    level: float = 0.95
    flips: bool = False
    """List the documents whose scores differ."""

    allow: Sequence[str] = ()
    """Kinds of mismatches that do not prevent a verdict, because they are what is compared; `all` for every kind."""

    def __post_init__(self) -> None:
        if self.correction not in CORRECTIONS:
            raise InvalidOption(
                f"unknown correction `{self.correction}`", hint=f"one of: {', '.join(CORRECTIONS)}"
            )
        if not 0.5 <= self.level < 1:
            raise InvalidOption(
                f"level {self.level} is not in the range 0.5 to 1", hint="use a level such as 0.95"
            )
        for kind in self.allow:
            if kind not in (*BLOCKING_KINDS, "all"):
                raise InvalidOption(
                    f"unknown kind of mismatch `{kind}`",
                    where="--allow_mismatch",
                    hint=f"one of: {', '.join((*BLOCKING_KINDS, 'all'))}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A document whose scores differ between two runs."""

    document: int
    other: int
    """Its number in the second run."""

    first: float
    second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantDifference:
    """The difference between two runs with one prompt variant."""

    name: str
    first: float
    second: float
    difference: float
    winner: str
    """`first`, `second` or `neither`: which has the better score, significant or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """The difference between two runs in one metric of a task, a category of it, a group, or all tasks together."""

    task: str
    metric: str
    pipeline: str
    category: str = ""
    first: float
    second: float
    difference: float
    """The second minus the first, in the metric's unit."""

    stderr: float
    low: float
    high: float
    interval_method: str
    p_value: float
    adjusted_p: float
    """The p-value adjusted for the number of tests."""

    test: str
    differs: bool
    """Whether the difference is significant at the given level; never if the runs are not comparable (`blocked`)."""

    better: bool | None
    """Whether the second is better; None without a significant difference."""

    detectable: float | None
    """The smallest true difference detected with 80 % power, adjusted for the number of tests."""

    documents: int
    clusters: int | None = None
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    """Documents on which the second is better, equal, worse; None for a corpus metric."""

    degrees: float = math.inf
    """Degrees of freedom of the standard error."""

    higher_is_better: bool = True
    share: bool = True
    """Whether the values lie between 0 and 1; differences are shown in percentage points."""

    blocked: tuple[str, ...] = ()
    """Kinds of mismatches because of which no run is called better: see `BLOCKING_KINDS`."""

    flips: tuple[Flip, ...] = ()
    notes: tuple[str, ...] = ()
    variants: tuple[VariantDifference, ...] = ()
    """The difference with each prompt, if the task has prompt variants."""

    members: tuple[str, ...] = ()
    """The tasks and groups of a group, in order; empty for a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Something other than the model that differs between two runs and may explain their difference."""

    kind: str
    """documents, prompts, few-shot, template, sampling, scoring, judge, identity, pairing, settings"""

    task: str
    what: str
    count: int | None = None
    total: int | None = None
    blocks: str = ""
    """One of `BLOCKING_KINDS` if no run can be called better because of it, else empty."""

    names: tuple[str, ...] = ()
    """The metrics or filter pipelines that it affects; empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """The comparison of a second run with a first."""

    first: str
    second: str
    first_model: str
    second_model: str
    level: float
    correction: str
    rows: tuple[ComparisonRow, ...]
    categories: tuple[ComparisonRow, ...] = ()
    groups: tuple[ComparisonRow, ...] = ()
    """The differences of groups; their p-values are adjusted for the number of groups."""

    overall: ComparisonRow | None = None
    """The mean over tasks, unweighted."""

    family: int = 1
    """The number of tests the p-values are adjusted for: all rows of all runs compared together."""

    mismatches: tuple[Mismatch, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        """Return both models and the first differences in one line."""
        shown = ", ".join(
            f"{row.task} {row.metric} {row.difference:+.4g} ({row.low:.4g} to {row.high:.4g}, p = {row.adjusted_p:.2g})"
            for row in self.rows[:3]
        )
        more = f", … {len(self.rows) - 3} more" if len(self.rows) > 3 else ""
        return (
            f"Comparison({self.second_model} against {self.first_model}: {shown or 'no common scores'}{more})"
        )

    def _repr_html_(self) -> str:
        """Return the differences as a table for notebooks. All text is escaped."""
        titles = (
            "task",
            "metric",
            "first",
            "second",
            "difference",
            f"{100 * self.level:g} % interval",
            "p",
            "",
        )
        rows = [*self.rows, *self.groups, *((self.overall,) if self.overall is not None else ())]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _list_cells(row)) + "</tr>"
            for row in rows
        )
        notes = [*(str(one) for one in self.notes)]
        heads = "".join(f"<th>{title}</th>" for title in titles)
        head = (
            f"<div>first: <b>{escape(self.first_model)}</b>, second: <b>{escape(self.second_model)}</b></div>"
        )
        below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
        return f'<div class="assay-comparison">{head}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{below}</div>'

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; infinite and undefined numbers become None."""
        plain: dict[str, Any] = _replace_non_finite(asdict(self))
        for row in (*plain["rows"], *plain["categories"], *plain["groups"], plain["overall"]):
            for name in ("variants", "members") if row is not None else ():
                if not row[name]:
                    del row[name]
        return plain


def _list_cells(row: ComparisonRow) -> tuple[str, ...]:
    verdict = {True: "better", False: "worse", None: ""}[row.better]
    return (
        row.task,
        row.metric,
        f"{row.first:.4f}",
        f"{row.second:.4f}",
        f"{row.difference:+.4f}",
        f"{row.low:.4f} – {row.high:.4f}",
        f"{row.adjusted_p:.2g}",
        verdict,
    )


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
