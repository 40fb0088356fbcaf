"""Documents of a task as they are opened: in the dataset's order, a chunk at a time, without those that are finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice

from assay.core.progress import TaskProgress
from assay.engine.judging.documents import OpenDocument
from assay.engine.planning.oracle_targets import tell_targets
from assay.engine.planning.plan import Plan, PlannedTask
from assay.engine.results.stop_rules import Stop
from assay.engine.running.prefetch import FIRST_WITH_MEDIA
from assay.engine.running.rendering import open_document, pass_over
from assay.user_code.runner import Draws

__all__ = ["CHUNK", "open_chunks"]

CHUNK = 256
"""Documents rendered, looked up and judged together."""


def open_chunks(
    plan: Plan,
    planned: PlannedTask,
    finished: AbstractSet[int],
    counters: TaskProgress,
    at_once: Callable[[list[OpenDocument]], int],
    stop: Stop | None,
) -> Iterator[list[OpenDocument]]:
    """Render what is not finished; with a rule for stopping, round by round."""
    if not planned.judged_apart and len(finished) < planned.documents:
        finished = frozenset()  # its documents are judged together, or not at all
    if stop is None:
        yield from _pass(plan, planned, finished, None, counters, at_once)
        return
    for wanted in stop.rounds():
        stop.left -= sum(document in finished for document in wanted)
        for chunk in _pass(plan, planned, finished, wanted, counters, at_once):
            stop.left -= len(chunk)
            yield chunk
    counters.total = stop.asked


def _pass(
    plan: Plan,
    planned: PlannedTask,
    finished: AbstractSet[int],
    wanted: AbstractSet[int] | None,
    counters: TaskProgress,
    at_once: Callable[[list[OpenDocument]], int],
) -> Iterator[list[OpenDocument]]:
    """One pass over the documents; those that are not wanted or finished are passed over, so that the others are rendered
    as in a whole pass."""
    rendering, digest = planned.task.begin(), plan.model_digest
    documents = iter(planned.task.documents())
    draws = Draws(plan.spec.seed, planned.task.name)
    count = FIRST_WITH_MEDIA if planned.task.has_media else CHUNK
    left = None if wanted is None else len(wanted)
    while (left is None or left > 0) and (batch := list(islice(documents, count))):
        chosen = batch if wanted is None else [one for one in batch if one.index in wanted]
        open_now = {one.index for one in chosen if not finished or one.index not in finished}
        with draws.rendering():
            chunk = [
                open_document(planned, rendering, document, digest)
                for document in batch
                if document.index in open_now or not pass_over(rendering, document)
            ]
        tell_targets(plan.model, planned, chunk)
        counters.done += len(chosen) - len(chunk)
        counters.reused += len(chosen) - len(chunk)
        left = None if left is None else left - len(chosen)
        if planned.task.has_media:
            count = at_once(chunk)
        if chunk:
            yield chunk
