"""Several pieces of work at once, their results as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

__all__ = ["as_done"]

T = TypeVar("T")


async def as_done(works: Sequence[Coroutine[Any, Any, list[T]]]) -> AsyncIterator[T]:
    """What each piece of work gives, as soon as it gives it; whoever stops listening stops the work.

    `asyncio.as_completed` does the same at several times the cost, which counts at thousands of calls a second.
    """
    loop = asyncio.get_running_loop()
    done: deque[asyncio.Task[list[T]]] = deque()
    waiting: asyncio.Future[None] | None = None

    def finished(task: asyncio.Task[list[T]]) -> None:
        done.append(task)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    tasks = [loop.create_task(work) for work in works]
    for task in tasks:
        task.add_done_callback(finished)
    left = len(tasks)
    try:
        while left:
            if not done:
                waiting = loop.create_future()
                await waiting
            while done:
                left -= 1
                for result in done.popleft().result():
                    yield result
    finally:
        if left:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
