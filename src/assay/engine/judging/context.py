"""The door through which a task's own code asks judges: synchronous, one document at a time.

While `process_results` judges a document, a `Sitting` is open in its thread. What is asked through it goes to
`Services`; the baton is laid down meanwhile, so that other documents go on. A question nobody answered leaves the
document unscored, also where the task's code would have made a 0 of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token

from assay.core.messages import Prompt
from assay.core.ports import Model
from assay.core.requests import Generate, Settings
from assay.core.responses import Failure, Outcome
from assay.engine.running.services import ModelServices
from assay.user_code.runner import ForeignCode

__all__ = ["Court", "Sitting", "current_sitting", "seated"]


class _Here(threading.local):
    sitting: Sitting | None = None


_HERE = _Here()
_OUTSIDE: list[Sitting] = []
"""For threads that foreign code starts itself: the run that was begun last."""

_RUN: ContextVar[Sitting | None] = ContextVar("run", default=None)
"""For aggregations: the run they belong to, of which several may go on at once."""


def current_sitting() -> Sitting | None:
    """The sitting the calling code belongs to; None outside of a run."""
    if _HERE.sitting is not None:
        return _HERE.sitting
    outside = _RUN.get() or (_OUTSIDE[-1] if _OUTSIDE else None)
    return None if outside is None else outside.inner()


@contextmanager
def seated(sitting: Sitting) -> Iterator[None]:
    """While this is open, the calling thread belongs to this sitting, and so do threads it starts."""
    _HERE.sitting = sitting
    _OUTSIDE.append(sitting)
    try:
        yield
    finally:
        _HERE.sitting = None
        _OUTSIDE.remove(sitting)


class Court:
    """The sittings of one run."""

    def __init__(self, services: ModelServices, foreign: ForeignCode, judges: Sequence[str]) -> None:
        self.services = services
        self.foreign = foreign
        self.judges = tuple(judges)
        """The judges the run names for whoever wants one, the first one first."""

        self.loop = asyncio.get_running_loop()
        self.asked: set[str] = set()
        """Tasks whose own code asked a judge."""

        self.running: Sitting | None = None
        """That of the document whose code runs at the moment."""

        self._outside = Sitting(self, "", -1)
        self._before: Token[Sitting | None]

    def __enter__(self) -> Court:
        _OUTSIDE.append(self._outside)
        self._before = _RUN.set(self._outside)
        return self

    def __exit__(self, *_: object) -> None:
        _RUN.reset(self._before)
        _OUTSIDE.remove(self._outside)

    @contextmanager
    def sitting(self, task: str, document: int) -> Iterator[Sitting]:
        """Open while a task's own code judges a document."""
        sitting = Sitting(self, task, document)
        _HERE.sitting = self.running = sitting
        try:
            yield sitting
        finally:
            _HERE.sitting = self.running = None


class Sitting:
    """What a task's own code may ask while it judges one document."""

    def __init__(self, court: Court, task: str, document: int) -> None:
        self._court = court
        self._task, self._document = task, document
        self._asked: Counter[tuple[str, str]] = Counter()
        self._unanswered: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges `--judge` names."""
        return self._court.judges

    @property
    def failed(self) -> str:
        """Why a question was never answered; empty when all were, at the first try or later."""
        return next((f"judge failed: {why}" for why in self._unanswered.values()), "")

    def inner(self) -> Sitting:
        """The sitting that stands for this one right now."""
        return self._court.running or self

    def ask(self, judge: str | Model, prompt: Prompt, settings: Settings) -> Outcome:
        """Ask a judge of the run by name, or a model the caller brings. Waits; other documents go on."""
        asked = asyncio.run_coroutine_threadsafe(self._ask(judge, prompt, settings), self._court.loop)
        with self._court.foreign.pause():
            outcome = asked.result()
        if self._court.running is None or _HERE.sitting is self:
            self._court.running = _HERE.sitting
        return outcome

    async def ask_async(self, judge: str | Model, prompt: Prompt, settings: Settings) -> Outcome:
        """The same from a loop that the caller's code runs."""
        asked = asyncio.run_coroutine_threadsafe(self._ask(judge, prompt, settings), self._court.loop)
        return await asyncio.wrap_future(asked)

    def takes_chat(self, judge: str) -> bool:
        """Whether a judge of the run is asked in messages."""
        return "chat" in self._court.services.traits(judge).abilities

    def refuse(self, why: str) -> None:
        """Say that something could not even be asked."""
        with self._lock:
            self._unanswered[("", why)] = why

    async def _ask(self, judge: str | Model, prompt: Prompt, settings: Settings) -> Outcome:
        services = self._court.services
        self._court.asked.add(self._task)
        if isinstance(judge, str):
            name = judge
        else:
            name = services.seat(judge.name, judge, await judge.identify())
        key = (prompt.digest, settings.digest)
        with self._lock:
            repeat, number = self._asked[key], self._asked.total()
            self._asked[key] += 1
        request = Generate(
            task=self._task,
            document=self._document,
            index=number,
            repeat=repeat,
            prompt=prompt,
            settings=settings,
        )
        outcome = await services.ask(name, request)
        with self._lock:
            if isinstance(outcome, Failure):
                self._unanswered[key] = f"{name}: {outcome.kind}: {outcome.message}"
            else:
                self._unanswered.pop(key, None)
        return outcome
