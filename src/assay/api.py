"""What the CLI and notebooks call: `run`, `plan`, `open_run`. The one door between sync and async."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from assay.core.errors import BadOption, Interrupted
from assay.core.home import assay_home
from assay.core.ports import Model
from assay.core.progress import RunProgress
from assay.core.runspec import RunSpec
from assay.engine import run as engine
from assay.engine.facts import facts_of, sandbox_facts
from assay.engine.foreign_code import ForeignCode
from assay.engine.main_thread import run_beside_helpers
from assay.engine.plan import Plan, make_plan
from assay.engine.watch import current_watch, watching
from assay.store.cache import ResponseCache
from assay.store.journal import FILE_NAME, Journal
from assay.store.runs import Run as StoredRun
from assay.viewer.lm_eval_files import write_files
from assay.viewer.progress import show_progress
from assay.viewer.tables import results_text

__all__ = ["Run", "open_run", "plan", "run"]

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class Run(StoredRun):
    """A run: its numbers (`results`, `estimates`), its documents, its table.

    >>> run = assay.run(tasks=["quickstart_addition"], limit=10)  # doctest: +SKIP
    >>> run.results["quickstart_addition"]["exact_match,get-number"]  # doctest: +SKIP
    1.0
    """

    files: list[Path] = field(default_factory=list)
    """Result files that were written for it, results first."""

    def table(self) -> str:
        """The results as text."""
        return results_text(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.table())}</pre>"


def open_run(path: str | Path) -> Run:
    """The run kept in a folder (or the folder of a journal file)."""
    folder = Path(path)
    return Run(folder.parent if folder.name == FILE_NAME else folder)


def plan(spec: RunSpec | None = None, **options: Any) -> Plan:
    """What a run would do, with every problem reported at once. Asks nothing, loads no weights.

    >>> plan(tasks=["quickstart_addition"], limit=10).documents  # doctest: +SKIP
    10
    """
    spec, model, judges = _spec(spec, options)
    return _wait(make_plan(spec, model=model, judges=judges))


def run(
    spec: RunSpec | None = None,
    *,
    progress: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    **options: Any,
) -> Run:
    """Evaluate a model on tasks: ask what was not answered yet, judge, sum up, keep everything.

    Args:
        spec: All options as one record; or give them as keywords, named as the flags are. Keywords win.
        progress: Show live progress on standard error.
        on_plan: Called when the plan stands, before anything is asked.
        **options: `model` may also be an object that implements the `Model` port; `judge` too, or a list of them.
    """
    spec, model, judges = _spec(spec, options)
    with watching(spec.helper_timeout):
        return _wait(_run(spec, model, judges, progress, on_plan), beside_helpers=True)


def _spec(spec: RunSpec | None, options: dict[str, Any]) -> tuple[RunSpec, Model | None, list[Model]]:
    given = options.get("model")
    model = None
    named = options.get("judge") or []
    listed = list(named) if isinstance(named, (list, tuple)) else [named]
    judges: list[Model] = [one for one in listed if isinstance(one, Model)]
    if judges:
        options = {**options, "judge": [one.name if isinstance(one, Model) else one for one in listed]}
    if isinstance(given, type):
        raise BadOption(
            f"`model` is the class {given.__name__}",
            where="model",
            hint=f"give a model: `{given.__name__}()`",
        )
    if given is not None and not isinstance(given, str):
        model, options = given, {**options, "model": given.name}
    if spec is None:
        return RunSpec.of(options), model, judges
    return replace(spec, **RunSpec.read(options)), model, judges


async def _run(
    spec: RunSpec,
    model: Model | None,
    judges: list[Model],
    progress: bool,
    on_plan: Callable[[Plan], None] | None,
) -> Run:
    with ExitStack() as opened:
        foreign = ForeignCode()
        opened.callback(foreign.close)
        planned = await foreign.run(lambda: _made_plan(spec, model, judges))
        return await _carried_out(planned, foreign, progress, on_plan)


def _made_plan(spec: RunSpec, model: Model | None, judges: list[Model]) -> Plan:
    """A plan runs helper code and loads data: that takes what it takes, but a signal ends it."""
    watch = current_watch()
    with watch.limit(0), watch:
        return asyncio.run(make_plan(spec, model=model, judges=judges))


async def _carried_out(
    planned: Plan, foreign: ForeignCode, progress: bool, on_plan: Callable[[Plan], None] | None
) -> Run:
    spec = planned.spec
    started = time.monotonic()
    with ExitStack() as opened:
        cache: ResponseCache | None = None
        if not spec.no_cache:
            kept = Path(spec.use_cache).expanduser() if spec.use_cache else assay_home() / "cache.sqlite"
            cache = ResponseCache(kept)
            opened.callback(cache.close)
        if on_plan is not None:
            on_plan(planned)
        journal = Journal.create(planned.folder)
        opened.callback(journal.close)
        facts = facts_of(planned)
        known = journal.facts()
        journal.set_facts({**facts, "started": known.get("started", facts["started"])}).result()
        counters = RunProgress()
        shown: AbstractContextManager[None] = show_progress(counters) if progress else nullcontext()
        with shown:
            await engine.run(planned, journal, cache, counters, foreign)
        seconds = journal.facts().get("seconds", 0.0) + time.monotonic() - started
        ended = {"ended": time.time(), "seconds": seconds, **sandbox_facts(planned)}
        journal.set_facts(ended).result()
    finished = Run(planned.folder)
    if spec.output_path is not None:
        finished.files = write_files(finished, spec.output_path, samples=spec.log_samples)
    return finished


@contextmanager
def _stopped_by_termination() -> Iterator[None]:
    """While a run goes on, a termination signal stops it as Ctrl-C does; afterwards it means what it meant before."""
    task, here = asyncio.current_task(), threading.current_thread() is threading.main_thread()
    if task is None or not here:
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    except NotImplementedError:  # Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)


def _wait(work: Coroutine[Any, Any, T], *, beside_helpers: bool = False) -> T:
    """Run to the end, also inside a notebook, whose loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(work, run_beside_helpers if beside_helpers else asyncio.run)
    done: Future[T] = Future()
    stop: list[Callable[[], object]] = []

    async def cancellable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        return await work

    def target() -> None:
        try:
            done.set_result(_run_here(cancellable(), asyncio.run))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=target, name="assay-run", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:  # stop the run, not only the waiting for it
        for cancel in stop:
            cancel()
        thread.join()
        raise
    return done.result()


def _run_here(work: Coroutine[Any, Any, T], run_all: Callable[[Coroutine[Any, Any, T]], T]) -> T:
    async def stoppable() -> T:
        with _stopped_by_termination():
            return await work

    try:
        return run_all(stoppable())
    except asyncio.CancelledError:
        raise Interrupted(
            "stopped by a signal; everything answered is saved", hint="repeat the call to go on"
        ) from None
