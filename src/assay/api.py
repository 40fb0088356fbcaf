"""What the CLI and notebooks call: `run`, `plan`, `open_run`. The one door between sync and async."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from assay.core.errors import BadOption, Interrupted
from assay.core.ports import Model, ToldTargets
from assay.core.progress import RunProgress
from assay.core.runspec import RunSpec
from assay.engine import run as engine
from assay.engine.planning.journal_setup import finished_run, open_journal
from assay.engine.planning.manifest import make_manifest
from assay.engine.planning.manifest_diff import compare_manifests
from assay.engine.planning.plan import Plan, make_plan
from assay.engine.planning.recorded_plan import RememberedModel, manifest_of, recall
from assay.engine.planning.run_names import kept_beside
from assay.engine.results.rescore import Scoring, Wanted, rescore
from assay.engine.results.run_facts import sandbox_facts, start_facts
from assay.engine.results.verify import Verification, current_identity
from assay.engine.results.verify import verify as verify_run
from assay.store.cache import ResponseCache, default_cache
from assay.store.finding import find_run
from assay.store.runs import Run as StoredRun
from assay.user_code.main_thread import run_beside_helpers
from assay.user_code.runner import ForeignCode
from assay.user_code.timeouts import current_watch, watching
from assay.viewer.comparison.comparing import compare_sources
from assay.viewer.comparison.records import CompareOptions, Comparison
from assay.viewer.comparison.sources import open_source
from assay.viewer.lm_eval_files import write_files_once
from assay.viewer.notebook import ShownRun
from assay.viewer.progress import show_progress
from assay.viewer.sinks.telling import open_sinks

__all__ = ["Run", "compare", "open_run", "plan", "resume", "run", "score", "verify"]

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class Run(ShownRun):
    """A run: its numbers (`results`, `estimates`), its table, its documents, its charts; notebooks show it.

    >>> run = assay.run(tasks=["quickstart_addition"], limit=10)  # doctest: +SKIP
    >>> run.results["quickstart_addition"]["exact_match,get-number"]  # doctest: +SKIP
    1.0
    """

    files: list[Path] = field(default_factory=list)
    """Result files that were written for it, results first."""


def open_run(path: str | Path) -> Run:
    """The run kept in a folder (or the folder of a journal file); or one of `./assay-runs`, by its id, the start of
    its id, or `latest`."""
    return Run(find_run(path))


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
    command: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Evaluate a model on tasks: ask what was not answered yet, judge, sum up, keep everything.

    Args:
        spec: All options as one record; or give them as keywords, named as the flags are. Keywords win.
        progress: Show live progress on standard error.
        on_plan: Called when the plan stands, before anything is asked.
        command: The command line it was asked for with, for the run's manifest.
        **options: `model` may also be an object that implements the `Model` port; `judge` too, or a list of them.
    """
    spec, model, judges = _spec(spec, options)
    wishes = _Wishes(progress=progress, on_plan=on_plan, command=tuple(command))
    with watching(spec.helper_timeout):
        return _wait(_run(spec, model, judges, wishes), beside_helpers=True)


def resume(
    run: str | Path | StoredRun,
    *,
    model: Model | None = None,
    judges: Sequence[Model] = (),
    progress: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    command: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Go on with a run where it stopped, with the options it was started with.

    Args:
        run: A run, its folder, its id, the start of its id, or `latest`.
        model: The model itself, where it was an object and not a name.
        judges: The judges, where they were objects.
        progress: Show live progress on standard error.
        on_plan: Called when the plan stands, before anything is asked.
        command: The command line it was asked for with, for the run's manifest.
        **options: Options that cannot change the result, such as `batch_size`; secrets that were not kept.

    Raises:
        BadOption: The task, the data or the model changed: what would go on is another run.
    """
    stored = run if isinstance(run, StoredRun) else Run(find_run(run))
    recalled = recall(manifest_of(stored), options)
    stored.close()
    wishes = _Wishes(
        progress=progress, on_plan=on_plan, command=tuple(command), resumed=(stored, recalled.manifest)
    )
    spec = replace(recalled.spec, refresh=recalled.spec.refresh and not stored.finished)
    spec = spec if "output_path" in options else kept_beside(spec, stored.folder)
    stored.close()
    with watching(spec.helper_timeout):
        return _wait(_run(spec, model, list(judges), wishes), beside_helpers=True)


def score(
    run: str | Path | StoredRun,
    *,
    tasks: Sequence[str] = (),
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    dry_run: bool = False,
    **options: Any,
) -> Scoring:
    """Apply filters, metrics and judges once more to the answers a run has; its model is never asked.

    Args:
        run: A run, its folder, its id, the start of its id, or `latest`.
        tasks: Only these of its tasks.
        filters: Only these filter pipelines of the tasks; or registered filters.
        metrics: Only these metrics of the tasks; or registered metrics.
        dry_run: Keep nothing: the scoring is in a temporary folder.
        **options: `judge` and `judge_args`, as `run` takes them: others than those the run had.
    """
    if unknown := options.keys() - {"judge", "judge_args"}:
        raise BadOption(
            f"`score` has no option `{min(unknown)}`", where="score", hint="the answers stay as they are"
        )
    opened = Run(run.folder if isinstance(run, StoredRun) else find_run(run))
    manifest = manifest_of(opened)
    spec, _, judges = _spec(replace(recall(manifest, {}).spec, predict_only=False), options)
    place = Path(tempfile.mkdtemp(prefix="assay-score-")) if dry_run else None
    wanted = Wanted(tasks=tasks, filters=filters, metrics=metrics)
    with ExitStack() as closing, watching(spec.helper_timeout):
        closing.callback(opened.close)
        cache = None
        if not spec.no_cache and (known := default_cache()).exists():
            cache = ResponseCache(known)
            closing.callback(cache.close)

        async def scored() -> Scoring:
            async with _planned(spec, RememberedModel(manifest), judges) as (whole, foreign):
                return await rescore(
                    opened, (manifest, make_manifest(whole)), whole, wanted, cache, foreign, place
                )

        return _wait(scored(), beside_helpers=True)


def verify(run: str | Path | StoredRun) -> Verification:
    """What changed since a run: reads its tasks again, renders its documents, asks nothing.

    >>> verify("latest").drifts  # doctest: +SKIP
    ()
    """
    stored = Run(run.folder if isinstance(run, StoredRun) else find_run(run))
    manifest = manifest_of(stored)
    spec = recall(manifest, {}).spec

    async def verified() -> Verification:
        async with _planned(spec, RememberedModel(manifest), []) as (plan, foreign):
            identity = await current_identity(spec, manifest)
            return await foreign.run(lambda: verify_run(stored, manifest, plan, identity))

    try:
        with watching(spec.helper_timeout):
            return _wait(verified(), beside_helpers=True)
    finally:
        stored.close()


def compare(first: str | Path | StoredRun, second: str | Path | StoredRun, **options: Any) -> Comparison:
    """How a second run differs from a first, document by document. Either may be result files of lm-eval or lmms-eval, or
    `model:NAME`: the newest runs of a model.

    `options` are those of `CompareOptions`: `tasks`, `metrics`, `cluster_by`, `category`, `correction`, `level`, `flips`.

    >>> compare("base", "tuned").rows[0].p_value  # doctest: +SKIP
    0.0213
    """
    with ExitStack() as opened:
        sources = [open_source(word) for word in (first, second)]
        for source in sources:
            opened.callback(source.close)
        return compare_sources(sources[0], sources[1], CompareOptions(**options))


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


@dataclass(frozen=True, kw_only=True)
class _Wishes:
    """How to go about a run, apart from what it is."""

    progress: bool = False
    on_plan: Callable[[Plan], None] | None = None
    command: tuple[str, ...] = ()
    resumed: tuple[StoredRun, Mapping[str, Any]] | None = None
    """The run that must be gone on with, and its manifest."""


async def _run(spec: RunSpec, model: Model | None, judges: list[Model], wishes: _Wishes) -> Run:
    async with _planned(spec, model, judges) as (planned, foreign):
        if wishes.resumed is not None:
            planned = _same_run(planned, *wishes.resumed)
        return await _carried_out(planned, foreign, wishes)


@asynccontextmanager
async def _planned(
    spec: RunSpec, model: Model | None, judges: list[Model]
) -> AsyncIterator[tuple[Plan, ForeignCode]]:
    """A plan, and where the helpers of its tasks run."""
    foreign = ForeignCode()
    try:
        yield await foreign.run(lambda: _made_plan(spec, model, judges)), foreign
    finally:
        foreign.close()


def _made_plan(spec: RunSpec, model: Model | None, judges: list[Model]) -> Plan:
    """A plan runs helper code and loads data: that takes what it takes, but a signal ends it."""
    watch = current_watch()
    with watch.limit(0), watch:
        return asyncio.run(make_plan(spec, model=model, judges=judges))


async def _carried_out(planned: Plan, foreign: ForeignCode, wishes: _Wishes) -> Run:
    spec = planned.spec
    started = time.monotonic()
    with ExitStack() as opened:
        cache: ResponseCache | None = None
        if not spec.no_cache and not isinstance(planned.model, ToldTargets):  # a target may have changed
            kept = Path(spec.use_cache).expanduser() if spec.use_cache else default_cache()
            cache = ResponseCache(kept, refresh=spec.refresh)
            opened.callback(cache.close)
        audience = open_sinks(spec.sink)
        if wishes.on_plan is not None:
            wishes.on_plan(planned)
        counters = RunProgress()
        opened.enter_context(audience.told(start_facts(planned), counters, planned.folder))
        if finished_run(planned) is None:
            journal = open_journal(planned, wishes.command)
            opened.callback(journal.close)
            drawn = wishes.progress and not planned.model.traits.interactive
            shown: AbstractContextManager[None] = show_progress(counters) if drawn else nullcontext()
            with shown:
                await engine.run(planned, journal, cache, counters, foreign)
            seconds = journal.facts().get("seconds", 0.0) + time.monotonic() - started
            ended = {"ended": time.time(), "seconds": seconds, **sandbox_facts(planned)}
            journal.set_facts(ended).result()
    finished = Run(planned.folder)
    if spec.output_path is not None:
        finished.files = write_files_once(finished, spec.output_path, samples=spec.log_samples)
    return finished


def _same_run(planned: Plan, run: StoredRun, manifest: Mapping[str, Any]) -> Plan:
    """The plan, kept where the run is; refused when it would be another run."""
    if planned.digest != manifest.get("digest", planned.digest) or planned.run_id != manifest["run_id"]:
        changes = compare_manifests(manifest, make_manifest(planned))
        named = "; ".join(f"{change.kind}: {change.what}" for change in changes[:3]) or "its options changed"
        raise BadOption(
            f"the run cannot be continued, because it would be another one: {named}",
            where=str(run.folder),
            hint=f"`assay run --from {run.folder}` starts anew with the same options and keeps every answer that fits",
        )
    return replace(planned, folder=run.folder)


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


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _wait(work: Coroutine[Any, Any, T], *, beside_helpers: bool = False) -> T:
    """Run to the end, also inside a notebook, whose loop is already running."""
    if not _in_a_loop():  # not inside an `except`, which would be in every traceback of a helper
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
