"""How a run is getting on: counters the engine moves and a screen reads. Nothing here is remembered."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.core.responses import Failure, Outcome, Usage

__all__ = ["JudgeProgress", "RunProgress", "TaskProgress", "TokenCount"]


@dataclass(slots=True)
class TokenCount:
    """Tokens read and written in this start, and what they cost."""

    read: int = 0
    written: int = 0
    cost_usd: float = 0.0
    priced: int = 0
    """Responses whose cost is known."""

    unpriced: int = 0
    """Responses somebody charges for, and nobody knows how much."""

    def add(self, usage: Usage | None, *, billed: bool = False) -> None:
        """Count what one response took; `billed`: somebody charges for it."""
        if usage is not None:
            self.read += usage.input_tokens
            self.written += usage.output_tokens
        if usage is not None and usage.cost_usd is not None:
            self.cost_usd += usage.cost_usd
            self.priced += 1
        elif billed:
            self.unpriced += 1


@dataclass(slots=True)
class TaskProgress:
    """One task's counters."""

    name: str
    total: int
    """Documents to ask."""

    done: int = 0
    """Documents that ended, however they ended; those of an earlier start included."""

    reused: int = 0
    """Documents that were already done when this start began."""

    endings: Counter[str] = field(default_factory=Counter)
    """How the documents of this start ended."""

    metric: str = ""
    """The metric the running score is of."""

    scored: int = 0
    sum: float = 0.0
    sum_of_squares: float = 0.0

    def add_scores(self, values: Sequence[float]) -> None:
        """Count some documents' scores."""
        self.scored += len(values)
        self.sum += sum(values)
        self.sum_of_squares += sum([value * value for value in values])

    @property
    def mean(self) -> float | None:
        """The running score; None before the first."""
        return self.sum / self.scored if self.scored else None

    @property
    def stderr(self) -> float | None:
        """Standard error of the running score; None before there are two."""
        if self.scored < 2:
            return None
        variance = max(0.0, self.sum_of_squares - self.sum * self.sum / self.scored) / (self.scored - 1)
        return math.sqrt(variance / self.scored)


@dataclass(slots=True)
class JudgeProgress:
    """One judge's counters: kept apart from those of the model that is evaluated."""

    asked: int = 0
    """Requests it answered in this start."""

    cached: int = 0
    """Requests answered from the journal or the cache."""

    failed: int = 0
    waiting: int = 0
    """Requests on their way."""

    tokens: TokenCount = field(default_factory=TokenCount)


@dataclass(slots=True)
class RunProgress:
    """A whole run's counters."""

    stage: str = "plan"
    """The verb of the moment: plan, open, ask, summarise, done."""

    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    asked: int = 0
    """Requests the model answered in this start."""

    cached: int = 0
    """Requests answered from the journal or the cache."""

    tokens: TokenCount = field(default_factory=TokenCount)
    """What the model read and wrote in this start."""

    failures: Counter[str] = field(default_factory=Counter)
    """Failed requests by kind."""

    judges: dict[str, JudgeProgress] = field(default_factory=dict)
    """What the judges were asked, by name."""

    def count(self, outcomes: Sequence[Outcome], *, billed: bool = False) -> None:
        """Count what the model made of some requests; `billed`: somebody charges for them."""
        failed = 0
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                self.failures[outcome.kind] += 1
                failed += 1
            elif billed or outcome.usage is not None:
                self.tokens.add(outcome.usage, billed=billed)
        self.asked += len(outcomes) - failed

    @property
    def done(self) -> int:
        return sum(task.done for task in self.tasks.values())

    @property
    def total(self) -> int:
        return sum(task.total for task in self.tasks.values())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Documents per second in this start."""
        fresh = self.done - sum(task.reused for task in self.tasks.values())
        return fresh / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to go at this rate; None before there is a rate."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None
