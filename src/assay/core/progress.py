"""Progress counters of a run: updated by the engine, read by the progress display. They are not stored."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.core.records.responses import Failure, Outcome, Usage

__all__ = ["JudgeProgress", "RunProgress", "TaskProgress", "TokenCount", "label_service"]


def label_service(name: str) -> str:
    """Return the label of a model beside the evaluated one.

    >>> label_service("gpt-4o"), label_service("user gpt-4o")
    ('judge gpt-4o', 'user gpt-4o')
    """
    return name if name.startswith("user ") else f"judge {name}"


@dataclass(slots=True)
class TokenCount:
    """Input and output tokens since this process started the run, and their cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Output tokens that are reasoning, as far as the model reports them."""

    cost_usd: float = 0.0
    priced: int = 0
    """Responses whose cost is known."""

    unpriced: int = 0
    """Responses of a billed model whose cost is unknown."""

    def add(self, usage: Usage | None, *, billed: bool = False) -> None:
        """Count the usage of one response. `billed`: the model charges for it."""
        if usage is not None:
            self.input_tokens += usage.input_tokens
            self.output_tokens += usage.output_tokens
            self.reasoning_tokens += usage.reasoning_tokens
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
    """Number of documents."""

    done: int = 0
    """Documents with any ending, those of earlier starts included."""

    reused: int = 0
    """Documents that were done before this start."""

    endings: Counter[str] = field(default_factory=Counter)
    """Endings of the documents of this start."""

    metric: str = ""
    """The metric of the running score."""

    scored: int = 0
    sum: float = 0.0
    sum_of_squares: float = 0.0

    def add_scores(self, values: Sequence[float]) -> None:
        """Add the scores of documents."""
        self.scored += len(values)
        self.sum += sum(values)
        self.sum_of_squares += sum([value * value for value in values])

    @property
    def mean(self) -> float | None:
        """The running score; None before the first score."""
        return self.sum / self.scored if self.scored else None

    @property
    def stderr(self) -> float | None:
        """Standard error of the running score; None for fewer than two scores."""
        if self.scored < 2:
            return None
        variance = max(0.0, self.sum_of_squares - self.sum * self.sum / self.scored) / (self.scored - 1)
        return math.sqrt(variance / self.scored)


@dataclass(slots=True)
class JudgeProgress:
    """Counters of one judge, separate from those of the evaluated model."""

    asked: int = 0
    """Requests the judge answered since this process started."""

    cached: int = 0
    """Requests answered from the journal or the cache."""

    failed: int = 0
    in_flight: int = 0
    """Requests without a response yet."""

    tokens: TokenCount = field(default_factory=TokenCount)


@dataclass(slots=True)
class RunProgress:
    """Counters of a run."""

    stage: str = "plan"
    """The current stage: plan, open, ask, summarise, done."""

    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    asked: int = 0
    """Requests the model answered since this process started."""

    cached: int = 0
    """Requests answered from the journal or the cache."""

    tokens: TokenCount = field(default_factory=TokenCount)
    """Tokens of the evaluated model since this process started."""

    failures: Counter[str] = field(default_factory=Counter)
    """Failed requests by kind."""

    judges: dict[str, JudgeProgress] = field(default_factory=dict)
    """Counters of each judge, by name."""

    measure_pause_s: Callable[[], float] | None = None
    """Returns the seconds until the next try if a server limits the rate, else 0."""

    @property
    def pause_s(self) -> float:
        """Seconds until the next try if a server limits the rate; 0: it does not."""
        return self.measure_pause_s() if self.measure_pause_s is not None else 0.0

    def count(self, outcomes: Sequence[Outcome], *, billed: bool = False) -> None:
        """Count outcomes of the evaluated model. `billed`: the model charges for requests."""
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
        """Documents per second since this process started."""
        fresh = self.done - sum(task.reused for task in self.tasks.values())
        return fresh / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds until the end; None before there is a rate."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None
