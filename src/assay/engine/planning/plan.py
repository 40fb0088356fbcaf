"""`make_plan`: turn options into a plan. Everything that can fail before the first request fails here.

All errors are reported at once: unknown names, broken task files, missing data, templates with missing columns, unknown metrics,
a model that cannot answer. Planning sends no request and loads no weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, InvalidOption, MissingPackage, TaskError
from assay.core.installation import merge_install_commands
from assay.core.options.parsing import group_mirrors
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model, SupportsPromptedAs
from assay.core.program_executor import use_executor
from assay.core.records.documents import Document
from assay.core.records.requests import REASONING_KEYS, Request, Settings
from assay.core.records.specs import TaskSpec
from assay.core.secrets import redact_values
from assay.engine.planning.manifests.run_names import (
    build_run_name,
    compute_run_digest,
    compute_task_digests,
    get_output_folder,
)
from assay.engine.planning.notes import collect_notes
from assay.engine.planning.option_checks import check_options, check_programs
from assay.engine.planning.records import (
    Plan,
    PlannedJudge,
    PlannedTask,
    count_name_lookups,
)
from assay.engine.planning.setup.capabilities import check_abilities
from assay.engine.planning.setup.judge_setup import JudgeRegistry
from assay.engine.planning.setup.model_setup import make_run_model, probe_model
from assay.engine.planning.subsets import choose_subsets, describe_subsets, find_subset
from assay.engine.planning.variants import (
    describe_idle_factors,
    drop_equal_variants,
    find_variant_problems,
    refuse_varied_subsets,
)
from assay.engine.results.run_facts import register_secrets
from assay.engine.running.cost_ledger import check_prices
from assay.sandboxes.program_runner import ProgramRunner
from assay.scoring.result_keys import find_metrics_without_values, is_misspelled
from assay.scoring.scorer import Scorer
from assay.tasks.dialogues import check_dialogue
from assay.tasks.files.helper_functions import (
    describe_missing_packages,
    find_functions,
    iterate_import_draws,
    may_draw_at_random,
)
from assay.tasks.files.index import TaskIndex, find_task_roots
from assay.tasks.files.selection import Selection, select_tasks
from assay.tasks.letter_choices import LetterChoiceTask, add_letter_metrics, describe_letter_tasks
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.task import RenderingOptions, Task, open_task
from assay.tasks.variants.expansion import expand_variants, find_family
from assay.tasks.variants.variant_task import open_variant
from assay.user_code.errors import wrap_user_errors
from assay.user_code.random_state import LoadingRandomState

__all__ = ["check_functions", "make_plan", "plan_task_in_worker"]


async def make_plan(
    spec: RunSpec,
    *,
    index: TaskIndex | None = None,
    model: Model | None = None,
    judges: Sequence[Model] = (),
) -> Plan:
    """Turn options into a plan. `judges` are objects for names in `--judge`.

    Raises:
        ErrorGroup: All errors, if there are several.
    """
    problems: list[AssayError] = []
    register_secrets(spec)
    selection = _select(spec, index, problems)
    seen: Sequence[str] = ()
    try:
        model = make_run_model(spec, model)
        seen = await probe_model(
            model,
            tools=any(one.tools is not None or one.agent is not None for one in selection.tasks.values()),
        )
    except AssayError as error:
        _add_error(problems, error)
    folder = get_output_folder(spec)
    judge_registry = None
    try:
        judge_registry = JudgeRegistry(spec, judges)
    except AssayError as error:
        _add_error(problems, error)
    for problem in check_options(spec, folder):
        _add_error(problems, problem)
    history_notes: list[str] = []
    try:
        refuse_varied_subsets(spec, selection.groups)
        spec, history_notes = choose_subsets(
            spec, selection.tasks, lambda task: _open_task(spec, task, model)
        )
    except AssayError as error:
        _add_error(problems, error)
    tasks: dict[str, PlannedTask] = {}
    programs = ProgramRunner(spec.sandbox, spec.sandbox_args, i_know=spec.i_know)
    with use_executor(programs):  # a helper may execute a program when it is imported
        loading = LoadingRandomState(spec.seed)
        names = count_name_lookups(selection)
        families: dict[str, str] = {}
        """Task -> its first variant, which has the data."""

        for name, task_spec in selection.tasks.items():
            loading.start(names.get(name, 0))
            try:
                original = tasks.get(families.setdefault(find_family(task_spec), name))
                tasks[name] = _plan_task(
                    spec,
                    task_spec,
                    model,
                    judge_registry,
                    programs,
                    loading,
                    None if original is None else original.task,
                )
            except AssayError as error:
                _add_error(problems, error)
        states = loading.start(names[""])
        for name, planned in tasks.items():
            if may_draw_at_random(planned.spec):
                tasks[name] = replace(planned, prompt_states=states)
    programs.close()
    if spec.samples is not None:
        for name in spec.samples:
            if selection.tasks and name not in map(find_family, selection.tasks.values()):
                problems.append(_build_sample_task_error(name, selection))
    identity: Mapping[str, str] = {}
    planned_judges: dict[str, PlannedJudge] = {}
    try:
        identity = redact_values(await model.identify()) if model is not None else {}
        planned_judges = await judge_registry.identify() if judge_registry is not None else {}
        if model is not None:
            check_prices(spec, [model, *(judge.model for judge in planned_judges.values())])
    except AssayError as error:
        _add_error(problems, error)
    if not problems:
        problems += find_variant_problems(spec, selection.groups, tasks)
    missing = describe_missing_packages(selection.tasks.values())
    if problems or model is None or judge_registry is None:
        _add_install_commands(problems, missing)
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
    groups, tasks, equal_notes = drop_equal_variants(spec, selection.groups, tasks)
    digest = compute_run_digest(
        spec,
        identity,
        {name: planned.digest for name, planned in tasks.items()},
        {name: judge.identity for name, judge in planned_judges.items()},
    )
    run_id = build_run_name(spec, model.name, digest)
    opened = {name: planned.task for name, planned in tasks.items()}
    return Plan(
        spec=spec,
        model=model,
        identity=identity,
        tasks=tasks,
        groups=add_letter_metrics(groups, selection.leaves, opened),
        top=tuple(selection.requested),
        run_id=run_id,
        digest=digest,
        folder=folder / run_id,
        random_states=states,
        judges=planned_judges,
        default_judges=judge_registry.default_judges,
        notes=tuple(
            dict.fromkeys(
                (
                    *seen,
                    *selection.notes,
                    *judge_registry.notes,
                    *describe_subsets(spec),
                    *history_notes,
                    *collect_notes(spec, model, tasks),
                    *describe_idle_factors(tasks),
                    *equal_notes,
                    *describe_letter_tasks(opened),
                    *missing.values(),
                )
            )
        ),
        install_command=merge_install_commands(missing),
        programs=programs,
    )


def _select(spec: RunSpec, index: TaskIndex | None, problems: list[AssayError]) -> Selection:
    """Select the tasks; if a name is wrong, select the others, so that their errors are reported too."""
    try:
        index = index or TaskIndex.build(find_task_roots(spec.include_path))
        return expand_variants(select_tasks(spec.tasks, index), spec)
    except AssayError as error:
        _add_error(problems, error)
    rest = Selection()
    if index is not None:
        for word in spec.tasks:
            try:
                rest.tasks |= select_tasks([word], index).tasks
            except (TaskError, ErrorGroup):
                _find_further_errors(spec, word, index, problems)
            except AssayError:
                continue  # reported already
    return rest


def _find_further_errors(spec: RunSpec, word: str, index: TaskIndex, problems: list[AssayError]) -> None:
    """Find the errors of a task file that cannot be loaded, as `assay check` does."""
    from assay.checks.checker import (  # few plans need it
        CheckOptions,
        check_tasks,
    )

    known = {problem.what for problem in problems}
    for subject in check_tasks(
        [word], index, CheckOptions(data_root=spec.data_root, allow_data_outside=spec.allow_data_outside)
    ).subjects:
        for finding in subject.findings:
            if finding.severity == "error" and finding.what not in known:
                known.add(finding.what)
                problems.append(TaskError(finding.what, where=finding.where, hint=finding.hint))


def _add_error(problems: list[AssayError], error: AssayError) -> None:
    for problem in error.errors if isinstance(error, ErrorGroup) else (error,):
        if str(problem) not in map(str, problems):
            problems.append(problem)


def _add_install_commands(problems: Sequence[AssayError], commands: Iterable[str]) -> None:
    """Add the packages that functions import when they are called to the install command of the first missing package."""
    for problem in problems:
        if isinstance(problem, MissingPackage):
            problem.others = [*problem.others, *commands]
            return


def _build_sample_task_error(name: str, selection: Selection) -> AssayError:
    from assay.core.errors import UnknownName

    return UnknownName.of("task of this run", name, sorted(selection.tasks), where="--samples", ls="tasks")


def _plan_task(
    spec: RunSpec,
    task_spec: TaskSpec,
    model: Model | None,
    judge_registry: JudgeRegistry | None,
    programs: ProgramRunner,
    loading: LoadingRandomState,
    original: Task | None = None,
) -> PlannedTask:
    """Check one task up to its first document and collect its errors."""
    problems: list[AssayError] = []
    try:
        check_programs(spec, task_spec, programs)
        check_functions(task_spec)
    except AssayError as error:
        _add_error(problems, error)
    task, scorer, user_model = None, None, ""
    try:
        task = _open_task(spec, task_spec, model, original)
        scorer = Scorer.from_spec(task.spec, tags=spec.reasoning_tags)
        for problem in [] if spec.predict_only else find_metrics_without_values(task.spec):
            if not is_misspelled(task.spec, problem):
                _add_error(problems, problem)
    except AssayError as error:
        _add_error(problems, error)
    if task is not None:
        try:
            _import_helpers(task_spec, loading)
            if may_draw_at_random(task_spec):
                with wrap_user_errors(task.spec, timed=False):
                    task.load_at_random()
                loading.keep()
            document, first = _render_first_document(task)
            _check_generation_settings(task, spec)
            check_dialogue(task)
            if task.spec.agent is not None:
                _check_agent(task.spec)
            if task.spec.agent is not None and judge_registry is not None:
                user_model = judge_registry.assign_user(task.spec.agent.user)
            if model is not None:
                check_abilities(model, task_spec, first)
            if scorer is not None and judge_registry is not None and not spec.predict_only:
                with wrap_user_errors(task.spec):
                    judge_registry.assign_judges(task, scorer, (document, first))
        except AssayError as error:
            _add_error(problems, error)
    if problems or task is None or scorer is None:
        raise ErrorGroup(problems)
    digests = compute_task_digests(spec, task_spec, task)
    return PlannedTask(
        user_model=user_model,
        task=task,
        scorer=scorer,
        documents=len(task),
        digest=digests["digest"],
        config_digest=digests["config_digest"],
        data_digest=digests["data_digest"],
        subset=find_subset(spec, task.name),
    )


def _import_helpers(task_spec: TaskSpec, loading: LoadingRandomState) -> None:
    """Draw what lm-eval's process draws when it imports the helper files of a task."""
    for path, draws in iterate_import_draws(task_spec):
        loading.import_file(path, draws)


def plan_task_in_worker(spec: RunSpec, task: str, model: Model, programs: ProgramRunner) -> PlannedTask:
    """Plan one task in a worker process. The driver has planned its judges."""
    selection = _select(spec, None, [])
    loading, names = LoadingRandomState(spec.seed), count_name_lookups(selection)
    for name in itertools.takewhile(lambda name: name != task, selection.tasks):
        loading.start(names.get(name, 0))
        _import_helpers(selection.tasks[name], loading)
        if may_draw_at_random(selection.tasks[name]) and may_draw_at_random(selection.tasks[task]):
            _open_task(spec, selection.tasks[name], model).load_at_random()
            loading.keep()
    loading.start(names.get(task, 0))
    return _plan_task(spec, selection.tasks[task], model, None, programs, loading)


def _open_task(spec: RunSpec, task_spec: TaskSpec, model: Model | None, original: Task | None = None) -> Task:
    if spec.repeats is not None and task_spec.output_type.can_repeat:
        task_spec = replace(task_spec, repeats=spec.repeats)
    rendering = build_rendering_options(spec, find_family(task_spec), model)
    if task_spec.variant is None:
        task = open_task(task_spec, rendering)
    else:
        task = open_variant(task_spec, rendering, original)
    letters = spec.mc_as_generation and task_spec.output_type.compares_choices
    return LetterChoiceTask(task) if letters else task


def _collect_reasoning_settings(spec: RunSpec) -> dict[str, Any]:
    """Return the options for reasoning as generation settings."""
    return {name: value for name in REASONING_KEYS if (value := getattr(spec, name)) is not None}


def _find_samples(spec: RunSpec, task: str) -> Sequence[int] | None:
    """Return the documents of a task that `--samples` or `--budget` selects; None: all."""
    subset = find_subset(spec, task)
    if subset is not None:
        return subset.indices
    return None if spec.samples is None else spec.samples.get(task)


def build_rendering_options(spec: RunSpec, task: str, model: Model | None) -> RenderingOptions:
    """Return the options that affect prompts."""
    chat_messages = model is None or "chat" in model.traits.abilities
    return RenderingOptions(
        num_fewshot=spec.num_fewshot,
        chat=bool(spec.apply_chat_template),
        multiturn=spec.multiturn,
        system_instruction=spec.system_instruction,
        gen_kwargs={**_collect_reasoning_settings(spec), **spec.gen_kwargs},
        fewshot_seed=spec.seed[3],
        limit=spec.limit,
        offset=spec.offset,
        samples=_find_samples(spec, task),
        draws_for_all=find_subset(spec, task) is not None,
        model_name=(model.prompted_as if isinstance(model, SupportsPromptedAs) else "") or spec.model,
        chat_messages=chat_messages,
        agentic_trace_mode=spec.agentic_trace_mode,
        process_with_media=spec.process_with_media,
        data_root=spec.data_root,
        mirrors=group_mirrors(spec.mirror),
        allow_data_outside=spec.allow_data_outside,
        trust_remote_code=spec.trust_remote_code,
        metadata=spec.metadata,
        model_args=spec.model_args,
        supports_tools=model is not None and "tools" in model.traits.abilities,
        tool_calls=spec.tool_calls,
    )


def check_functions(task_spec: TaskSpec) -> None:
    """Check that every `!function` refers to a function."""
    problems: list[AssayError] = []
    values = {id(function) for function in find_functions(task_spec.config.get("dataset_kwargs"))}
    for function in find_functions(task_spec.config):
        try:
            with wrap_user_errors(task_spec):  # importing the helper file runs its code
                _ = function.value() if id(function) in values else function.load()
        except AssayError as error:
            _add_error(problems, error)
    if problems:
        raise ErrorGroup(problems)


def _render_first_document(task: Task) -> tuple[Document, tuple[Request, ...]]:
    """Load the data and render the first document."""
    with wrap_user_errors(task.spec, timed=False):
        first = next(iter(task.documents()), None)
    if first is None:
        where = "--samples" if task.rendering.samples is not None else "--offset"
        raise InvalidOption(f"no document of `{task.name}` is selected", where=where)
    with wrap_user_errors(task.spec):
        requests = task.start_pass().render_requests(first)
        task.target(copy_fields(first.fields))
    return first, requests


def _check_agent(spec: TaskSpec) -> None:
    from assay.agents.setup import check_agent  # few tasks have an agent

    with wrap_user_errors(spec):
        check_agent(spec)


def _check_generation_settings(task: Task, spec: RunSpec) -> None:
    """Check that the generation settings are valid. The error names `--gen_kwargs` if the invalid setting comes from there."""
    if _are_settings_valid(task.settings):
        return
    given = task.settings.values
    wrong = [name for name, value in given.items() if not _are_settings_valid(Settings({name: value}))]
    from_flag = [name for name in wrong if name in (spec.gen_kwargs or {})]
    named = from_flag or wrong or list(given)
    shown = ", ".join(f"`{name}`: {given[name]!r}" for name in named)
    raise InvalidOption(
        f"invalid generation setting of `{task.name}`: {shown}",
        where="--gen_kwargs" if from_flag else task.spec.place("generation_kwargs"),
        hint="`until` is a string or a list of strings; temperature, top_p and lengths are numbers",
    )


def _are_settings_valid(settings: Settings) -> bool:
    try:
        readings = (settings.temperature, settings.top_p, settings.top_k, settings.max_tokens, settings.seed)
        float(settings.values.get("temperature") or 0)
        return all(isinstance(text, str) for text in settings.stop) and readings[0] >= 0
    except (TypeError, ValueError):
        return False
