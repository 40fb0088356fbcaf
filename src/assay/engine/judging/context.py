"""How a task's own code asks LLM judges: synchronously, for one document at a time.

While `process_results` judges a document, a `DocumentJudgeContext` is current. Its calls go to `Services`, and the executor
runs other documents while they wait. If a judge does not answer, the document stays unscored, even where the task's code
would have turned the failure into a 0.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token

from assay.core.ports import Model
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Outcome
from assay.core.secrets import redact_values
from assay.engine.running.services import ModelServices
from assay.user_code.executor import Executor

__all__ = ["DocumentJudgeContext", "JudgeContext", "current_judge_context", "use_judge_context"]

_CURRENT: ContextVar[DocumentJudgeContext | None] = ContextVar("judge_context", default=None)
_OPEN: list[DocumentJudgeContext] = []
"""Contexts of the runs in this process, for threads that user code starts: they inherit no context variables."""


def current_judge_context() -> DocumentJudgeContext | None:
    """Return the context the calling code belongs to; None outside of a run."""
    current = _CURRENT.get() or (_OPEN[-1] if _OPEN else None)
    return None if current is None else current.resolve()


@contextmanager
def use_judge_context(context: DocumentJudgeContext) -> Iterator[None]:
    """Make this the current context of the calling code and of threads it starts."""
    token = _CURRENT.set(context)
    _OPEN.append(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        _OPEN.remove(context)


class JudgeContext:
    """Access of one run's user code to its judges."""

    def __init__(self, services: ModelServices, executor: Executor, judges: Sequence[str]) -> None:
        self.services = services
        self.executor = executor
        self.judges = tuple(judges)
        """The judges `--judge` names, for code that names none; the first one first."""

        self.loop = asyncio.get_running_loop()
        self.tasks_with_judge_calls: set[str] = set()
        self.active: DocumentJudgeContext | None = None
        """The context of the document whose code runs now."""

        self._outside = DocumentJudgeContext(self, "", -1)
        self._token: Token[DocumentJudgeContext | None]

    def __enter__(self) -> JudgeContext:
        _OPEN.append(self._outside)
        self._token = _CURRENT.set(self._outside)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
        _OPEN.remove(self._outside)

    @contextmanager
    def open_document(self, task: str, document: int) -> Iterator[DocumentJudgeContext]:
        """Make a context current while a task's own code judges a document."""
        context = DocumentJudgeContext(self, task, document)
        token = _CURRENT.set(context)
        self.active = context
        try:
            yield context
        finally:
            self.active = None
            _CURRENT.reset(token)


class DocumentJudgeContext:
    """What a task's own code may ask while it judges one document."""

    def __init__(self, run: JudgeContext, task: str, document: int) -> None:
        self._run = run
        self._task, self._document = task, document
        self._calls: Counter[tuple[str, str]] = Counter()
        self._failures: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges `--judge` names."""
        return self._run.judges

    @property
    def failure(self) -> str:
        """Why a call was never answered; empty when all were answered, at the first attempt or later."""
        return next((f"judge failed: {why}" for why in self._failures.values()), "")

    def resolve(self) -> DocumentJudgeContext:
        """Return the context of the document that is judged now: a thread of user code knows only the run's."""
        if self is self._run._outside and self._run.active is not None:
            return self._run.active
        return self

    def ask(self, judge: str | Model, prompt: Prompt, settings: Settings) -> Outcome:
        """Ask a judge of the run by name, or a model the caller brings. Other documents are judged meanwhile."""
        call = asyncio.run_coroutine_threadsafe(self._ask(judge, prompt, settings), self._run.loop)
        outcome = self._run.executor.wait(call)
        if _CURRENT.get() is self:
            self._run.active = self
        return outcome

    async def ask_async(self, judge: str | Model, prompt: Prompt, settings: Settings) -> Outcome:
        """Ask from an event loop that the caller's code runs."""
        call = asyncio.run_coroutine_threadsafe(self._ask(judge, prompt, settings), self._run.loop)
        return await asyncio.wrap_future(call)

    def accepts_chat(self, judge: str) -> bool:
        """Whether a judge of the run takes chat messages."""
        return "chat" in self._run.services.traits(judge).abilities

    def record_failure(self, why: str) -> None:
        """Record that a call could not even be made."""
        with self._lock:
            self._failures[("", why)] = why

    async def _ask(self, judge: str | Model, prompt: Prompt, settings: Settings) -> Outcome:
        services = self._run.services
        self._run.tasks_with_judge_calls.add(self._task)
        if isinstance(judge, str):
            name = judge
        else:
            name = services.add_judge(judge.name, judge, redact_values(await judge.identify()))
        key = (prompt.digest, settings.digest)
        with self._lock:
            repeat, number = self._calls[key], self._calls.total()
            self._calls[key] += 1
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
                self._failures[key] = f"{name}: {outcome.kind}: {outcome.message}"
            else:
                self._failures.pop(key, None)
        return outcome
