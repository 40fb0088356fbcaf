"""One vLLM engine for many tests, on its own event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.models.remote.vllm_server import ON_A_PROCESSOR

from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.models.vllm import VllmModel

__all__ = ["SharedModel", "share_model"]

T = TypeVar("T")


class SharedModel:
    """An open model on its own event loop."""

    def __init__(self, model: VllmModel, loop: asyncio.AbstractEventLoop) -> None:
        self.model = model
        self._loop = loop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(600)

    def ask(self, window: Sequence[Request]) -> dict[str, Outcome]:
        return {outcome.request_id: outcome for outcome in self.do(self.collect(window))}

    async def collect(self, window: Sequence[Request]) -> list[Outcome]:
        return [outcome async for outcome in self.model.answer(window)]

    def make_view(self) -> VllmModel:
        """Return a new model that uses this engine; opening and closing it has no cost."""
        shared, loop = self, self._loop

        class SharedView(type(self.model)):  # type: ignore[misc]
            async def open(self) -> None: ...

            async def close(self) -> None: ...

            def give_tokens(self) -> None:
                shared.model.give_tokens()

            async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
                asked = asyncio.run_coroutine_threadsafe(shared.collect(window), loop)
                for outcome in await asyncio.wrap_future(asked):
                    yield outcome

        return SharedView(**self.model.given)  # type: ignore[attr-defined]


@contextmanager
def share_model(make: Callable[..., VllmModel], **arguments: Any) -> Iterator[SharedModel]:
    for name, value in ON_A_PROCESSOR.items():
        os.environ.setdefault(name, value)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    model = make(**arguments)
    model.given = arguments  # type: ignore[attr-defined]
    made = SharedModel(model, loop)
    try:
        made.do(model.open())
        yield made
    finally:
        made.do(model.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
