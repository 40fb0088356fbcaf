"""Run the passes of a prefix tree. The next passes are planned in a thread while the model computes.

The KV cache of a shared prefix is released with the last pass that starts from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Self

from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.hf.prefix_sharing.model_runner import ModelRunner, PassResult
from assay.models.hf.prefix_sharing.pass_planning import PassPlan, PlannedPass

__all__ = ["PassPrefetcher", "run_passes"]

_PREFETCHED_PASSES = 2
"""Number of passes that are prepared in advance."""


def run_passes(
    prefetcher: PassPrefetcher, runner: ModelRunner, *, keep_cache: bool = False
) -> Iterator[tuple[PlannedPass, PassResult]]:
    """Compute every pass of a plan and yield it with its result.

    `keep_cache`: include the KV cache in the results, for callers that continue the sequences.
    """
    with prefetcher:
        while (planned := prefetcher.take_next()) is not None:
            try:
                past = planned.past.cache if planned.past else None
                computed = runner.run(
                    planned.prepared, past, keep_cache=keep_cache or planned.output_prefix is not None
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not prefetcher.budget.halve():
                    raise
                prefetcher.rewind_to(planned)
                release_memory(runner.device)
                continue
            prefetcher.budget.record_success()
            if planned.output_prefix is not None:
                planned.output_prefix.cache = computed.past
            yield planned, computed
            # releasing logits takes time, and the next pass needs their memory
            with runner.count_model_time():
                del planned, computed, past


class PassPrefetcher:
    """Plans passes in a thread, ahead of the model."""

    def __init__(self, plan: PassPlan, budget: BatchBudget) -> None:
        self._plan = plan
        self.budget = budget
        self._thread = ThreadPoolExecutor(1, "hf-plan")
        self._ready: deque[Future[PlannedPass | None]] = deque()

    def __enter__(self) -> Self:
        self._fill_queue()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def start(self) -> Self:
        """Prepare the first pass and start preparing the next ones in the background."""
        self._fill_queue()
        wait([self._ready[0]])
        return self

    def _fill_queue(self) -> None:
        while len(self._ready) < _PREFETCHED_PASSES:
            self._ready.append(self._thread.submit(lambda: self._plan.plan_next(self.budget.size)))

    def take_next(self) -> PlannedPass | None:
        """Return the next pass, or None at the end of the plan."""
        planned = self._ready.popleft().result()
        if planned is None:
            return None
        if planned.size > self.budget.size:  # the budget shrank after this pass was planned
            self.rewind_to(planned)
            return self.take_next()
        self._fill_queue()
        return planned

    def rewind_to(self, planned: PlannedPass) -> None:
        """Discard the prepared passes and plan again from this one."""
        for one in self._ready:
            one.result()
        self._ready.clear()
        self._plan.rewind_to(planned)
        self._fill_queue()
