"""What a comparison says: numbers as data, for tables, JSON and pictures alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay.core.errors import BadOption
from assay.stats.multiple import CORRECTIONS

__all__ = ["Comparison", "CompareOptions", "Flip", "Mismatch", "Row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What to compare, and how strictly."""

    tasks: Sequence[str] = ()
    """Only these; empty: all that both have."""

    metrics: Sequence[str] = ()
    """Only these; empty: the first one of each task."""

    cluster_by: str = ""
    """Documents that agree in this field belong together; empty: as the task says."""

    category: str = ""
    """Also compare documents of each value of this field apart."""

    correction: str = "holm"
    level: float = 0.95
    flips: bool = False
    """List the documents on which one is right and the other is not."""

    def __post_init__(self) -> None:
        if self.correction not in CORRECTIONS:
            raise BadOption(
                f"no correction is called `{self.correction}`", hint=f"one of: {', '.join(CORRECTIONS)}"
            )
        if not 0.5 <= self.level < 1:
            raise BadOption(f"a level of {self.level} makes no sense", hint="0.95 is usual")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A document on which two runs disagree."""

    document: int
    other: int
    """Its number in the second run."""

    first: float
    second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The difference between two runs in one metric of a task, a category of it, or all tasks together."""

    task: str
    metric: str
    pipeline: str
    category: str = ""
    first: float
    second: float
    difference: float
    """The second minus the first, in the metric's own unit."""

    stderr: float
    low: float
    high: float
    interval_method: str
    p_value: float
    adjusted_p: float
    """Allowing for the number of tasks."""

    test: str
    differs: bool
    """Whether chance alone is ruled out, at the level asked for."""

    better: bool | None
    """Whether the second is the better one, where it differs and the metric has a direction."""

    detectable: float | None
    """The smallest true difference that would have been found four times in five, allowing for the number of tasks."""

    documents: int
    clusters: int | None = None
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    """Documents on which the second scores better, alike, worse; None for a metric of whole sets."""

    degrees: float = math.inf
    """Degrees of freedom of the standard error."""

    higher_is_better: bool = True
    share: bool = True
    """Whether it is a number between 0 and 1, shown in points."""

    flips: tuple[Flip, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Something the two runs do not have in common, and which may be why they differ."""

    kind: str
    """documents, prompts, few-shot, template, sampling, scoring, settings"""

    task: str
    what: str
    count: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that was found out about a second run against a first."""

    first: str
    second: str
    first_model: str
    second_model: str
    level: float
    correction: str
    rows: tuple[Row, ...]
    categories: tuple[Row, ...] = ()
    overall: Row | None = None
    """All tasks together, each counting alike."""

    family: int = 1
    """How many tests the p-values allow for: all rows of all runs that were compared together."""

    mismatches: tuple[Mismatch, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values; what is infinite is nothing anybody knows, and None."""
        plain: dict[str, Any] = _finite(asdict(self))
        return plain


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
