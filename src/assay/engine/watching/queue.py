"""The order in which waiting checkpoints are evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from assay.engine.watching.checkpoints import Checkpoint

__all__ = ["Order", "choose_next"]

Order = Literal["newest", "even", "oldest"]


def choose_next(
    waiting: Sequence[Checkpoint],
    covered: Iterable[float],
    order: Order,
    priorities: Mapping[str, float] | None = None,
) -> Checkpoint | None:
    """Return the next checkpoint to evaluate; None if none waits.

    `covered`: the steps of checkpoints that are evaluated or running. `even` chooses the checkpoint that is farthest from them, so
    that the curve soon covers the whole training. Checkpoints with a higher priority come first, whatever the order.
    """
    if not waiting:
        return None
    wanted = priorities or {}
    top = max(wanted.get(one.name, 0.0) for one in waiting)
    first = [one for one in waiting if wanted.get(one.name, 0.0) == top]
    numbered = [one for one in first if one.step is not None]
    if not numbered:
        return first[0]
    newest = max(numbered, key=lambda one: one.step or 0.0)
    if order == "oldest":
        return min(numbered, key=lambda one: one.step or 0.0)
    steps = sorted(covered)
    if order == "newest" or not steps:
        return newest
    return max(
        numbered, key=lambda one: (min(abs((one.step or 0.0) - step) for step in steps), one.step or 0.0)
    )
