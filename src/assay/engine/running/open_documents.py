"""How many documents of each task are open, and which task may open more.

A task whose judges, helpers or dialogues are slow fills its own room and no other: the next task goes on meanwhile.
Memory stays bounded, because a document is open until it is judged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from assay.engine.results.stop_rules import Stop

__all__ = ["Rooms"]


class Rooms:
    """Open documents by task. Tasks are preferred in the order they are named: prompts that begin alike stay together."""

    def __init__(
        self,
        room: int,
        *,
        dialogues: Collection[str] = (),
        room_of_dialogues: int = 0,
        rounds: Mapping[str, Stop] | None = None,
    ) -> None:
        self._room = room
        self._rounds = rounds or {}
        self._dialogues = frozenset(dialogues)
        self._room_of_dialogues = room_of_dialogues
        self._open: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def begin(self, task: str, count: int) -> None:
        """Count documents as open."""
        async with self._changed:
            self._open[task] += count

    async def end(self, task: str, count: int) -> None:
        """Count them as ended."""
        async with self._changed:
            self._open[task] -= count
            self._changed.notify_all()

    def free(self, tasks: Iterable[str]) -> str | None:
        """The first task that may open more; None when all are full."""
        return next((task for task in tasks if self._has_room(task)), None)

    async def wait(self, tasks: Collection[str]) -> None:
        """Until one of the tasks may open more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.free(tasks) is not None)

    async def wait_for_dialogues(self) -> None:
        """Until every dialogue has ended: none of them asks any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: not any(self._open[task] for task in self._dialogues))

    def _has_room(self, task: str) -> bool:
        stop = self._rounds.get(task)
        if stop is not None and not stop.left and self._open[task]:
            return False  # whether there is another round depends on this one
        room = self._room_of_dialogues if task in self._dialogues else self._room
        return self._open[task] < room
