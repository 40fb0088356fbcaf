"""Limit how many documents of each task are open, and choose the task that may open more.

A task with slow judges, helpers or dialogues reaches its own limit, and the next task continues. Memory stays bounded, because
a document is open until it is judged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from assay.engine.results.stop_rules import TaskStopRule

__all__ = ["OpenDocumentLimiter"]


class OpenDocumentLimiter:
    """Counts open documents by task. Earlier tasks come first, so that prompts with the same prefix stay together."""

    def __init__(
        self,
        limit: int,
        *,
        dialogues: Collection[str] = (),
        dialogue_limit: int = 0,
        rounds: Mapping[str, TaskStopRule] | None = None,
    ) -> None:
        self._limit = limit
        self._rounds = rounds or {}
        self._dialogues = frozenset(dialogues)
        self._dialogue_limit = dialogue_limit
        self._open: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def add(self, task: str, count: int) -> None:
        """Add open documents."""
        async with self._changed:
            self._open[task] += count

    async def remove(self, task: str, count: int) -> None:
        """Remove documents that ended."""
        async with self._changed:
            self._open[task] -= count
            self._changed.notify_all()

    def choose_task(self, tasks: Iterable[str]) -> str | None:
        """Return the first task that may open more; None if none may."""
        return next((task for task in tasks if self._may_open(task)), None)

    async def wait(self, tasks: Collection[str]) -> None:
        """Wait until one of the tasks may open more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.choose_task(tasks) is not None)

    async def wait_for_dialogues(self) -> None:
        """Wait until every dialogue has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: not any(self._open[task] for task in self._dialogues))

    def _may_open(self, task: str) -> bool:
        stop = self._rounds.get(task)
        if stop is not None and not stop.unread_documents and self._open[task]:
            return False  # this round decides whether there is another
        limit = self._dialogue_limit if task in self._dialogues else self._limit
        return self._open[task] < limit
