"""Work once: a tree of sequences is computed so that no token is computed twice.

The model only computes. What it computes next is planned while it does (`planning`), and what is kept of a trunk is dropped
with the last pass that starts from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Self

from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.hf.prefix_sharing.model_runner import Computed, Runner
from assay.models.hf.prefix_sharing.pass_planning import Plan, Planned

__all__ = ["Ahead", "compute"]

_READY = 2
"""Passes that are prepared before their turn."""


def compute(ahead: Ahead, runner: Runner, *, keep: bool = False) -> Iterator[tuple[Planned, Computed]]:
    """Every pass of a plan, and what it gave.

    `keep`: hand on keys and values, too, for those who go on from the ends of the sequences.
    """
    with ahead:
        while (planned := ahead.take()) is not None:
            try:
                past = planned.past.kept if planned.past else None
                computed = runner.run(planned.prepared, past, keep=keep or planned.leaves is not None)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not ahead.budget.halve():
                    raise
                ahead.return_to(planned)
                free_memory(runner.device)
                continue
            ahead.budget.succeeded()
            if planned.leaves is not None:
                planned.leaves.kept = computed.past
            yield planned, computed
            # logits take long to be given back, and what is computed next needs their room
            with runner.computing():
                del planned, computed, past


class Ahead:
    """Makes a plan in a thread of its own, some passes before the model."""

    def __init__(self, plan: Plan, budget: Budget) -> None:
        self._plan = plan
        self.budget = budget
        self._thread = ThreadPoolExecutor(1, "hf-plan")
        self._ready: deque[Future[Planned | None]] = deque()

    def __enter__(self) -> Self:
        self._go_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def begin(self) -> Self:
        """Prepare the first pass now and others from now on."""
        self._go_on()
        wait([self._ready[0]])
        return self

    def _go_on(self) -> None:
        while len(self._ready) < _READY:
            self._ready.append(self._thread.submit(lambda: self._plan.next(self.budget.size)))

    def take(self) -> Planned | None:
        """The next pass, while others are prepared; None when all are done."""
        planned = self._ready.popleft().result()
        if planned is None:
            return None
        if planned.size > self.budget.size:  # memory ran out since
            self.return_to(planned)
            return self.take()
        self._go_on()
        return planned

    def return_to(self, planned: Planned) -> None:
        """What was prepared no longer holds."""
        for one in self._ready:
            one.result()
        self._ready.clear()
        self._plan.return_to(planned)
        self._go_on()
