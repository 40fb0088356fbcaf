"""The Python API behind the CLI and notebooks: `run`, `plan`, `resume`, `score`, `verify`, `compare`, `open_run`.

The only place where synchronous code enters the asynchronous engine.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from assay.core.errors import AssayError, InvalidOption, RunInterrupted, UnknownName
from assay.core.options.run_spec import RunSpec, list_options
from assay.core.ports import Model, SupportsTargets
from assay.core.progress import RunProgress
from assay.core.temporary_folders import sweep_temporary_folders
from assay.core.terminal_text import escape_control_characters
from assay.engine import run as engine
from assay.engine.planning.manifests.manifest import make_manifest
from assay.engine.planning.manifests.recorded_plan import get_manifest, load_options
from assay.engine.planning.manifests.run_names import get_output_folder, move_output_beside
from assay.engine.planning.plan import make_plan
from assay.engine.planning.records import Plan
from assay.engine.planning.run_keywords import RunKeywords
from assay.engine.planning.setup.journal_setup import find_finished_run, open_journal
from assay.engine.planning.setup.model_setup import load_model_files, register_model_class
from assay.engine.planning.setup.recorded_model import RecordedModel
from assay.engine.results.run_facts import describe_sandbox, describe_start
from assay.models import MODELS
from assay.store.cache.response_cache import ResponseCache, default_cache_path
from assay.store.runs.latest import record_latest
from assay.store.runs.lookup import find_run
from assay.store.runs.run import Run as StoredRun
from assay.tasks.python_task import PythonTask, add_base_task, save_task_config
from assay.user_code.event_loop import (
    interrupt_on_signals,
    run_coroutine,
    run_with_user_code,
    run_without_user_code,
)
from assay.user_code.executor import Executor
from assay.user_code.process_state import ProcessState
from assay.user_code.timeouts import enforce_time_limit
from assay.viewer.documents.failure_reasons import summarise_reason
from assay.viewer.notebook import NotebookRun

if TYPE_CHECKING:
    from assay.engine.lockfiles.locked_runs import LockStatus
    from assay.engine.lockfiles.lockfile import Lockfile
    from assay.engine.results.rescore import Scoring
    from assay.engine.results.verify import Verification
    from assay.models.function_model import ModelObject
    from assay.viewer.comparison.records import Comparison

__all__ = [
    "Run",
    "check_lock",
    "compare",
    "lock",
    "open_run",
    "plan",
    "resume",
    "run",
    "score",
    "update_lock",
    "verify",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SAVED_TASKS_FOLDER = "tasks"
"""The folder beside the runs with the tasks that were defined in Python."""


@dataclass(eq=False, repr=False)
class Run(NotebookRun):
    """A stored run: `results`, `estimates`, `table()`, documents and charts. Notebooks display it.

    >>> run = assay.run(tasks=["quickstart_addition"], limit=10)  # doctest: +SKIP
    >>> run.results["quickstart_addition"]["exact_match,get-number"]  # doctest: +SKIP
    1.0
    """

    files: list[Path] = field(default_factory=list)
    """Result files written for the run, the results file first."""


def _list_options_in_signature(function: F) -> F:
    """Add every option to the signature and the docstring of a function, so that notebooks complete and explain them."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    options = list_options()
    keywords = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=RunKeywords.__annotations__[name],
        )
        for name, default, _ in options
    ]
    function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
    listed = "\n".join(f"        {name}: {option.help}" for name, _, option in options)
    function.__doc__ = f"{inspect.getdoc(function)}\n\n    Options:\n{listed}\n"
    return function


def open_run(path: str | Path) -> Run:
    """Open a stored run by folder, journal file, run id, start of a run id, or `latest`. Ids refer to `./assay-runs`.

    The path of result files of another program opens the run that is imported from them.
    """
    from assay.engine.imports.run_cache import find_run_or_results  # a run does not need it

    return Run(find_run_or_results(path))


@_list_options_in_signature
def plan(spec: RunSpec | None = None, **options: Unpack[RunKeywords]) -> Plan:
    """Return what a run would do, or raise all problems at once. Sends no request and loads no weights.

    >>> plan(tasks=["quickstart_addition"], limit=10).documents  # doctest: +SKIP
    10
    """
    temporary = Path(tempfile.mkdtemp(prefix="assay-tasks-")) if _has_task_objects(options) else None
    spec, model, judges = _parse_options(spec, options, task_folder=temporary)
    with enforce_time_limit(spec.helper_timeout):
        return _make_plan(spec, model, judges)


@_list_options_in_signature
def run(
    spec: RunSpec | None = None,
    *,
    progress: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    command: Sequence[str] = (),
    locked: str | Path | None = None,
    allow_drift: Sequence[str] = (),
    **options: Unpack[RunKeywords],
) -> Run:
    """Evaluate a model on tasks: request missing responses, score them, aggregate, and store everything.

    Args:
        spec: All options as one record; keyword options (named like the flags) take precedence.
        progress: Show live progress on standard error.
        on_plan: Called with the plan before the first request.
        command: The command line, for the manifest of the run.
        locked: A lockfile. Tasks, model and settings come from it; `options` may add those that do not affect results.
        allow_drift: Kinds of differences from the lockfile to accept: `versions`, `code`, … or `all`.
        **options: Options of the run. `model` may also be a function of a prompt or an object that implements `Model`; so may
            `judge`, or a list. `tasks` may contain `assay.Task` objects and dictionaries with the keys of a task file.
    """
    allowed: frozenset[str] = frozenset()
    known: Lockfile | None = None
    if locked is not None or allow_drift:  # few runs need a lockfile
        from assay.engine.lockfiles.locked_options import build_locked_spec
        from assay.engine.lockfiles.locked_runs import check_kinds, require_lock
        from assay.engine.lockfiles.lockfile import read_lock

        allowed = check_kinds(allow_drift, "--allow_drift")
        known = None if locked is None else read_lock(Path(locked))
    if known is not None:
        if spec is not None:
            raise InvalidOption("`spec` and `locked` cannot be used together", where="locked")
        spec, options = build_locked_spec(known, {**options}), {}
    spec, model, judges = _parse_options(spec, options)
    execution = _Execution(progress=progress, on_plan=on_plan, command=tuple(command))
    with enforce_time_limit(spec.helper_timeout):
        planned = _make_plan(spec, model, judges)
        if known is not None:
            with ProcessState().redirect_output():
                planned, changes = require_lock(planned, known, allowed)
            notes = [
                escape_control_characters(f"differs from {known.path.name}: {change.kind}: {change.what}")
                for change in changes
            ]
            planned = replace(planned, notes=(*planned.notes, *notes))
        finished = _execute_plan(planned, execution)
    return finished if command else _close_results(finished)


def lock(
    path: str | Path,
    spec: RunSpec | None = None,
    *,
    prompts: int | None = None,
    **options: Unpack[RunKeywords],
) -> tuple[Lockfile, list[str]]:
    """Write a lockfile: everything that the score of a run depends on. Sends no request and loads no weights.

    Args:
        path: The lockfile.
        spec: All options as one record; keyword options take precedence.
        prompts: Documents whose prompts are readable in the file, per task; -1: all; None: the first ones, up to 8,000 characters.
        **options: Options of the run.

    Returns:
        The lockfile, and notes about what it does not contain.
    """
    from assay.engine.lockfiles.locked_runs import make_lock
    from assay.engine.lockfiles.lockfile import write_lock

    spec, model, judges = _parse_options(spec, options)
    with enforce_time_limit(spec.helper_timeout):
        planned = _make_plan(spec, model, judges)
        with ProcessState().redirect_output():
            made, notes = make_lock(planned, Path(path), prompts)
    write_lock(made)
    return made, notes


def update_lock(
    path: str | Path, *, prompts: int | None = None, **options: Any
) -> tuple[Lockfile, LockStatus, list[str]]:
    """Write a lockfile again with what its options give now. Options replace those of the lockfile.

    Returns:
        The lockfile, what changed, and notes about what it does not contain.
    """
    from assay.engine.lockfiles.locked_options import build_updated_spec
    from assay.engine.lockfiles.locked_runs import LockStatus, compare_plan, make_lock
    from assay.engine.lockfiles.lockfile import read_lock, write_lock

    old = read_lock(Path(path))
    spec = build_updated_spec(old, options)
    with enforce_time_limit(spec.helper_timeout):
        planned = _make_plan(spec, None, [])
        with ProcessState().redirect_output():
            changes = compare_plan(planned, old)
            made, notes = make_lock(planned, old.path, prompts)
    write_lock(made)
    return made, LockStatus(file=old.path.name, digest=old.digest, changes=tuple(changes)), notes


def check_lock(path: str | Path, **options: Any) -> LockStatus:
    """Return what differs from a lockfile now. Sends no request; if the model is not available, the rest is checked."""
    from assay.engine.lockfiles.locked_options import build_locked_spec
    from assay.engine.lockfiles.locked_runs import LockStatus, compare_plan
    from assay.engine.lockfiles.lockfile import read_lock

    known = read_lock(Path(path))
    spec = build_locked_spec(known, options)
    unchecked: tuple[str, ...] = ()
    with enforce_time_limit(spec.helper_timeout):
        try:
            planned = _make_plan(spec, None, [])
        except AssayError as error:
            recorded = RecordedModel({"model": known.content["model"], "options": {}})
            try:
                planned = _make_plan(spec, recorded, [])
            except AssayError:
                raise error from None
            unchecked = (f"the model and its template: {error.what}",)
        with ProcessState().redirect_output():
            changes = compare_plan(planned, known)
    return LockStatus(file=known.path.name, digest=known.digest, changes=tuple(changes), unchecked=unchecked)


def _close_results(run: Run) -> Run:
    """Return the run with its results read and its files closed, so that a script can keep thousands of runs.

    The journal opens again when something else is read. The command line reads and reports runs in its own way.
    """
    _warn_if_not_scored(run)
    _ = run.estimates
    run.close()
    return run


def _warn_if_not_scored(run: Run) -> None:
    """Warn if no document of a run got a response, or the code of a task failed on every document, with the first reason."""
    outcomes = {task: run.outcomes(task) for task in run.tasks}
    failed = sum(one.get("failed", 0) for one in outcomes.values())
    if failed and failed == sum(sum(one.values()) for one in outcomes.values()):
        why = _read_first_reason(run, run.tasks)
        warnings.warn(f"all {failed} documents failed: {why}", UserWarning, stacklevel=4)
        return
    for task, counts in outcomes.items():
        scored = [estimate.scored for estimate in run.estimates if estimate.task == task]
        if scored and not any(scored) and set(counts) == {"unscored"} and _has_code_failed(run, task):
            why = _read_first_reason(run, [task])
            warnings.warn(f"no document of `{task}` has a score: {why}", UserWarning, stacklevel=4)


def _has_code_failed(run: Run, task: str) -> bool:
    """Whether the code of a task raised an exception on its first document."""
    first = next(iter(run.records(task)), None)
    return first is not None and str(first["why"]).startswith("Traceback")


def _read_first_reason(run: Run, tasks: Iterable[str]) -> str:
    """Return why the first document of the tasks has no score, in one line."""
    found = (record["why"] for task in tasks for record in run.records(task) if record["why"])
    return summarise_reason(next(found, ""))


def resume(
    run: str | Path | StoredRun,
    *,
    model: ModelObject | Callable[..., Any] | None = None,
    judges: Sequence[ModelObject | Callable[..., Any]] = (),
    tasks: Sequence[PythonTask | Mapping[str, Any]] = (),
    progress: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    command: Sequence[str] = (),
    **options: Any,
) -> Run:
    """Continue an interrupted run with its original options.

    Args:
        run: A run, its folder, its id, the start of its id, or `latest`.
        model: The model, if the run was started with an object instead of a name.
        judges: The judges, if the run was started with objects.
        tasks: The tasks that are objects with functions that could not be saved with the run.
        progress: Show live progress on standard error.
        on_plan: Called with the plan before the first request.
        command: The command line, for the manifest of the run.
        **options: Options that do not affect results, such as `batch_size`, and secrets, which are not stored.

    Raises:
        InvalidOption: The task, the data or the model changed, so that it would be a different run.
    """
    from assay.engine.lockfiles.locked_runs import restore_lock

    stored = run if isinstance(run, StoredRun) else Run(find_run(run))
    recalled = load_options(get_manifest(stored), options)
    stored.close()
    execution = _Execution(progress=progress, on_plan=on_plan, command=tuple(command))
    spec = replace(recalled.spec, refresh=recalled.spec.refresh and not stored.finished)
    spec = spec if "output_path" in options else move_output_beside(spec, stored.folder)
    spec = _find_saved_tasks(spec, stored.folder, tasks)
    stored.close()
    if model is None:
        _check_model_name(spec, stored.folder)
    given_model = None if model is None else _adapt_model(model)
    given_judges = [_adapt_model(one, where="judges") for one in judges]
    with enforce_time_limit(spec.helper_timeout):
        planned = restore_lock(_make_plan(spec, given_model, given_judges), recalled.manifest)
        planned = _check_same_run(planned, stored, recalled.manifest)
        finished = _execute_plan(planned, execution)
    return finished if command else _close_results(finished)


def _check_model_name(spec: RunSpec, folder: Path) -> None:
    """Check that the model of a stored run has a name; a function or an object must be passed again.

    Raises:
        UnknownName: No model has the recorded name.
    """
    load_model_files(spec.include_path)
    register_model_class(spec.model)
    try:
        MODELS.get(spec.model)
    except UnknownName as error:
        again = f"assay.resume({folder.name!r}, model=…)"
        hint = f"if it is a function or an object, continue in Python: {again}"
        raise UnknownName(error.what, where=str(folder), hint=hint) from None


def score(
    run: str | Path | StoredRun,
    *,
    tasks: Sequence[str] = (),
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    reasoning: Literal["", "keep", "strip"] = "",
    dry_run: bool = False,
    **options: Any,
) -> Scoring:
    """Apply filters, metrics and judges again to the stored responses of a run. Sends no request to its model.

    Args:
        run: A run, its folder, its id, the start of its id, or `latest`.
        tasks: Score only these tasks of the run.
        filters: Apply only these filter pipelines of the tasks, or registered filters.
        metrics: Apply only these metrics of the tasks, or registered metrics.
        reasoning: `keep` scores the reasoning as part of the answers, `strip` removes reasoning from them.
        dry_run: Store the scoring in a temporary folder instead of the run.
        **options: `judge` and `judge_args` as for `run`, to replace the judges of the run.
    """
    from assay.engine.results.rescore import ScoringSelection, rescore

    if unknown := options.keys() - {"judge", "judge_args"}:
        raise InvalidOption(
            f"unknown option `{min(unknown)}`",
            where="score",
            hint="only `judge` and `judge_args` are accepted",
        )
    opened = Run(run.folder if isinstance(run, StoredRun) else find_run(run))
    manifest = get_manifest(opened)
    recalled = _find_saved_tasks(load_options(manifest, {}).spec, opened.folder)
    spec, _, judges = _parse_options(replace(recalled, predict_only=False), options)
    place = Path(tempfile.mkdtemp(prefix="assay-score-")) if dry_run else None
    wanted = ScoringSelection(tasks=tasks, filters=filters, metrics=metrics, reasoning=reasoning)
    with ExitStack() as closing, enforce_time_limit(spec.helper_timeout):
        closing.callback(opened.close)
        cache = None
        if not spec.no_cache and (known := default_cache_path()).exists():
            cache = ResponseCache(known)
            closing.callback(cache.close)

        whole = _make_plan(spec, RecordedModel(manifest), judges)
        manifests = (manifest, make_manifest(whole))
        return _run_stages(
            whole, lambda executor: rescore(opened, manifests, whole, wanted, cache, executor, place)
        )


def verify(run: str | Path | StoredRun) -> Verification:
    """Return what changed since a run. Checks every record, reads its tasks, renders its documents and scores its responses
    again; sends no request.

    Raises:
        CorruptStore: A record of the run is damaged.

    >>> verify("latest").drifts  # doctest: +SKIP
    ()
    """
    from assay.engine.lockfiles.locked_runs import check_recorded_lock
    from assay.engine.results.verify import get_current_identity, verify_scores
    from assay.engine.results.verify import verify as verify_run

    stored = Run(run.folder if isinstance(run, StoredRun) else find_run(run))
    stored.check_damage()
    manifest = get_manifest(stored)
    spec = _find_saved_tasks(load_options(manifest, {}).spec, stored.folder)

    try:
        with enforce_time_limit(spec.helper_timeout):
            plan = _make_plan(spec, RecordedModel(manifest), [])
            identity = run_coroutine(get_current_identity(spec, manifest))
            found = verify_run(stored, manifest, plan, identity)
            current = replace(plan, identity=identity[0])
            found = replace(found, lock=check_recorded_lock(current, manifest, stored.folder))
            return _run_stages(plan, lambda executor: verify_scores(stored, manifest, plan, found, executor))
    finally:
        stored.close()


def compare(first: str | Path | StoredRun, second: str | Path | StoredRun, **options: Any) -> Comparison:
    """Compare two runs document by document. Either may also be result files of another program, or `model:NAME` for the
    newest runs of a model.

    `options` are those of `CompareOptions`: `tasks`, `metrics`, `cluster_by`, `category`, `correction`, `level`, `flips`.

    >>> compare("base", "tuned").rows[0].p_value  # doctest: +SKIP
    0.0213
    """
    from assay.engine.imports.run_cache import replace_results_by_run
    from assay.viewer.comparison.records import CompareOptions
    from assay.viewer.comparison.run_comparison import compare_sources
    from assay.viewer.comparison.sources import open_source

    with ExitStack() as opened:
        sources = [
            open_source(word if isinstance(word, StoredRun) else replace_results_by_run(word))
            for word in (first, second)
        ]
        for source in sources:
            opened.callback(source.close)
        return compare_sources(sources[0], sources[1], CompareOptions(**options))


def _adapt_model(given: Any, *, where: str = "model") -> Model:
    """Return a function or an object as a model."""
    from assay.models.function_model import adapt_model  # most runs name their models

    return adapt_model(given, where=where)


def _parse_options(
    spec: RunSpec | None, options: Mapping[str, Any], *, task_folder: Path | None = None
) -> tuple[RunSpec, Model | None, list[Model]]:
    """Return the options with names instead of objects, and the objects. Tasks that are objects are saved.

    `task_folder`: where to save them; by default in the folder of the runs.
    """
    options = dict(options)
    model = None
    given = options.get("model")
    if given is not None and not isinstance(given, str):
        model = _adapt_model(given)
        options["model"] = model.name
    named = options.get("judge") or []
    listed = list(named) if isinstance(named, (list, tuple)) else [named]
    judges = [one if isinstance(one, str) else _adapt_model(one, where="judge") for one in listed]
    if any(not isinstance(one, str) for one in judges):
        options["judge"] = [one if isinstance(one, str) else one.name for one in judges]
    if (player := options.get("user")) is not None:
        (player,) = player if isinstance(player, (list, tuple)) and len(player) == 1 else (player,)
        if not isinstance(player, (str, list, tuple)):
            judges.append(_adapt_model(player, where="user"))
            player = judges[-1].name  # type: ignore[union-attr]
        options["user"] = [player] if isinstance(player, str) else player
    tasks = options.pop("tasks", None)
    parsed = RunSpec.of(options) if spec is None else replace(spec, **RunSpec.read(options))
    if tasks is not None:
        saved = _save_tasks(tasks, parsed, task_folder)
        parsed = replace(parsed, **RunSpec.read({"tasks": saved}))
    return parsed, model, [one for one in judges if not isinstance(one, str)]


def _find_saved_tasks(
    spec: RunSpec, folder: Path, given: Sequence[PythonTask | Mapping[str, Any]] = ()
) -> RunSpec:
    """Return the options with the saved tasks of a run, which may have been moved. Given tasks replace those of their name."""
    beside = folder.parent / SAVED_TASKS_FOLDER
    names = []
    for name in spec.tasks:
        path = Path(name)
        moved = beside / path.parent.name / path.name
        names.append(str(moved) if path.suffix == ".yaml" and not path.exists() and moved.exists() else name)
    for path in map(Path, _save_tasks(list(given), spec, beside) if given else ()):
        names = [str(path) if Path(name).name == path.name else name for name in names]
    return replace(spec, tasks=names)


def _has_task_objects(options: Mapping[str, Any]) -> bool:
    tasks = options.get("tasks") or ()
    listed = [tasks] if isinstance(tasks, (str, PythonTask, Mapping)) else tasks
    return any(not isinstance(one, str) for one in listed)


def _save_tasks(tasks: Any, spec: RunSpec, folder: Path | None) -> Any:
    """Return the names of tasks. Tasks that are objects or dictionaries are saved and become the path of their file."""
    if isinstance(tasks, str):
        return tasks
    if not isinstance(tasks, (PythonTask, Mapping, Iterable)):
        raise InvalidOption(
            f"`tasks` must be names or tasks, not {tasks!r:.60}", where="tasks", hint='for example ["gsm8k"]'
        )
    listed = [tasks] if isinstance(tasks, (PythonTask, Mapping)) else list(tasks)
    if all(isinstance(one, str) for one in listed):
        return listed
    folder = folder or get_output_folder(spec) / SAVED_TASKS_FOLDER
    names = []
    for one in listed:
        if isinstance(one, (str, Path)):
            names.append(str(one))
        elif isinstance(one, PythonTask):
            names.append(str(one.save(folder)))
        elif isinstance(one, Mapping):
            names.append(str(save_task_config(add_base_task(one, spec.include_path), folder)))
        else:
            raise InvalidOption(
                f"a task must be a name, an `assay.Task` or a dictionary, not {type(one).__name__}",
                where="tasks",
                hint='tasks=["gsm8k", assay.Task(name=…, documents=…, prompt=…)]',
            )
    return names


@dataclass(frozen=True, kw_only=True)
class _Execution:
    """How to execute a run: progress display, callback and command line."""

    progress: bool = False
    on_plan: Callable[[Plan], None] | None = None
    command: tuple[str, ...] = ()


def _make_plan(spec: RunSpec, model: Model | None, judges: list[Model]) -> Plan:
    """Build the plan in the calling thread, because planning loads data and runs user code. A signal interrupts it."""
    try:
        with interrupt_on_signals(), ProcessState().redirect_output():
            return run_coroutine(make_plan(spec, model=model, judges=judges))
    except asyncio.CancelledError:
        raise RunInterrupted("stopped by a signal", hint="no request was sent") from None


def _execute_plan(plan: Plan, execution: _Execution) -> Run:
    return _run_stages(plan, lambda executor: _execute(plan, executor, execution))


def _run_stages(plan: Plan, stages: Callable[[Executor], Coroutine[Any, Any, T]]) -> T:
    """Run the stages of a plan to completion on the executor that the plan needs."""
    run_all = run_with_user_code if plan.has_user_code else run_without_user_code
    try:
        return run_all(stages)
    except asyncio.CancelledError:
        raise RunInterrupted(
            "stopped by a signal; all responses are saved", hint="repeat the command to continue"
        ) from None


async def _execute(planned: Plan, executor: Executor, execution: _Execution) -> Run:
    from assay.viewer.sinks.dispatcher import open_sinks
    from assay.viewer.terminal.progress import show_progress

    spec = planned.spec
    started = time.monotonic()
    sweep_temporary_folders()
    with ExitStack() as opened:
        cache: ResponseCache | None = None
        # a model that is shown the target answers differently when the target changes
        if not spec.no_cache and not isinstance(planned.model, SupportsTargets):
            cache_path = Path(spec.use_cache).expanduser() if spec.use_cache else default_cache_path()
            cache = ResponseCache(cache_path, refresh=spec.refresh)
            opened.callback(cache.close)
        sinks = open_sinks(spec.sink)
        if execution.on_plan is not None:
            execution.on_plan(planned)
        counters = RunProgress()
        opened.enter_context(sinks.report_run(describe_start(planned), counters, planned.folder))
        if find_finished_run(planned) is None:
            journal = open_journal(planned, execution.command)
            opened.callback(journal.close)
            show = execution.progress and not planned.model.traits.interactive
            display: AbstractContextManager[None] = show_progress(counters) if show else nullcontext()
            with display:
                await engine.run(planned, journal, cache, counters, executor)
            seconds = journal.read_facts().get("seconds", 0.0) + time.monotonic() - started
            end_facts = {"ended": time.time(), "seconds": seconds, **describe_sandbox(planned)}
            journal.set_facts(end_facts).result()
    finished = Run(planned.folder)
    record_latest(planned.folder)
    if spec.output_path is not None:
        from assay.viewer.exports.lm_eval import write_lm_eval_once

        finished.files = write_lm_eval_once(finished, spec.output_path, samples=spec.log_samples)
    return finished


def _check_same_run(planned: Plan, run: StoredRun, manifest: Mapping[str, Any]) -> Plan:
    """Return the plan with the folder of the run; raise an error if the plan describes a different run."""
    if planned.digest != manifest.get("digest", planned.digest) or planned.run_id != manifest["run_id"]:
        from assay.engine.planning.manifests.manifest_diff import compare_manifests

        changes = compare_manifests(manifest, make_manifest(planned))
        named = "; ".join(f"{change.kind}: {change.what}" for change in changes[:3]) or "its options changed"
        raise InvalidOption(
            f"cannot continue the run because it changed: {named}",
            where=str(run.folder),
            hint=f"`assay run --from {run.folder}` starts a new run with the same options and reuses matching responses",
        )
    return replace(planned, folder=run.folder)
