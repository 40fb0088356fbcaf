"""The Python API of lm-eval and lmms-eval for scripts: `simple_evaluate`, `evaluate` and `TaskManager`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.tasks.files.index import TaskIndex, find_task_roots
from assay_compat.commands.model_references import ModelReference, find_reference
from assay_compat.commands.script_tasks import find_task_words, load_tasks

__all__ = ["TaskManager", "evaluate", "get_task_dict", "simple_evaluate"]

_IGNORED_OPTIONS = frozenset(
    "max_batch_size cache_requests rewrite_requests_cache delete_requests_cache check_integrity write_out verbosity"
    " datetime_str distributed_executor_backend force_simple process_docs_parallel launcher_args".split()
)
"""Arguments that do not affect scores and that Assay ignores."""

_SAME_OPTIONS = frozenset(
    "num_fewshot batch_size device use_cache samples bootstrap_iters system_instruction apply_chat_template gen_kwargs"
    " predict_only confirm_run_unsafe_code metadata offset".split()
)
_SEEDS = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
_DEFAULT_SEEDS = (0, 1234, 1234, 1234)


class TaskManager:
    """The task index: the default task folders and those of `include_path`."""

    def __init__(
        self,
        verbosity: str | None = None,
        include_path: str | Iterable[str] | None = None,
        include_defaults: bool = True,
        metadata: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        self.include_path = (
            [include_path] if isinstance(include_path, str) else list(map(str, include_path or ()))
        )
        self.include_defaults = include_defaults
        self.metadata = dict(metadata or {})

    @property
    def index(self) -> TaskIndex:
        """Every task, group and tag that names can refer to."""
        return TaskIndex.build(find_task_roots(self.include_path))

    def _list(self, *kinds: Any) -> list[str]:
        if self.include_defaults:
            return self.index.names(*kinds)
        return TaskIndex.build([Path(folder) for folder in self.include_path]).names(*kinds)

    @property
    def all_tasks(self) -> list[str]:
        """The names of all tasks, groups and tags."""
        return self._list()

    @property
    def all_subtasks(self) -> list[str]:
        """The names of all tasks."""
        return self._list("task")

    @property
    def all_groups(self) -> list[str]:
        """The names of all groups."""
        return self._list("group")

    @property
    def all_tags(self) -> list[str]:
        """The names of all tags."""
        return self._list("tag")

    @property
    def task_index(self) -> dict[str, dict[str, Any]]:
        """Kind, file and members of each name."""
        entries = self.index.entries
        return {
            name: {
                "type": entries[name].kind,
                "yaml_path": entries[name].file or -1,
                "task": list(entries[name].members) or -1,
            }
            for name in self.all_tasks
        }

    def list_all_tasks(
        self, list_groups: bool = True, list_tags: bool = True, list_subtasks: bool = True
    ) -> str:
        """Return Markdown tables of the groups, tags and tasks."""
        parts = []
        for title, wanted, kind in (
            ("Group", list_groups, "group"),
            ("Tag", list_tags, "tag"),
            ("Task", list_subtasks, "task"),
        ):
            if wanted:
                names = self._list(kind)
                width = max([len(title), *map(len, names)])
                rows = [
                    f"|{title.ljust(width)}|",
                    f"|{'-' * width}|",
                    *(f"|{name.ljust(width)}|" for name in names),
                ]
                parts.append("\n".join(rows) + "\n")
        return "\n".join(parts)

    def match_tasks(self, task_list: Iterable[str]) -> list[str]:
        """Return the names that match a list of globs."""
        from fnmatch import fnmatchcase

        patterns = list(task_list)
        return [name for name in self.all_tasks if any(fnmatchcase(name, pattern) for pattern in patterns)]

    def _get_config(self, name: str) -> dict[str, Any]:
        """Return the keys of a task or group file after its includes, without loading data."""
        from assay.tasks.files.yaml_reader import read_task_file

        entry = self.index.entries.get(name)
        return dict(read_task_file(entry.path).config) if entry is not None and entry.path is not None else {}

    def load(self, task_list: Any) -> dict[str, Any]:
        """Return task objects by name, and the groups: `{"tasks": …, "groups": …, "group_map": …}`."""
        listed = _to_list(task_list)
        tasks, groups = load_tasks(listed, self.index, self.metadata)
        return {"tasks": tasks, "groups": groups, "group_map": groups}

    def load_task_or_group(self, task_list: Any) -> dict[str, Any]:
        """Return task objects by name; those of a group below the name of the group."""
        return get_task_dict(task_list, self)


def simple_evaluate(
    model: Any,
    model_args: str | Mapping[str, Any] | None = None,
    tasks: Iterable[Any] | str | None = None,
    *,
    limit: float | None = None,
    log_samples: bool = True,
    task_manager: TaskManager | None = None,
    fewshot_as_multiturn: bool | None = None,
    evaluation_tracker: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a model on tasks and return results with the keys of lm-eval.

    `model` is a name or an object with lm-eval's methods (`generate_until`, `loglikelihood`, …). The run is stored in
    `./assay-runs`, so that repeating an interrupted call continues it.
    """
    from assay import api
    from assay.viewer.exports.lm_eval import build_results, iterate_samples

    settings = _translate_options(options)
    if isinstance(model, str) and isinstance(model_args, Mapping):
        model = find_reference(model, dict(model_args)) or model
    if isinstance(model, ModelReference):
        settings = {**model.options, **settings}
        model, model_args = model.make_model() or model.name, model.arguments
    settings["model"] = model if isinstance(model, str) else _wrap_model(model, settings)
    if model_args and isinstance(model, str):
        settings["model_args"] = model_args
    settings["tasks"] = _find_words(tasks, task_manager or TaskManager())
    if any(not isinstance(task, str) for task in _to_list(tasks)):
        settings["allow_data_outside"] = True  # the script defines the task, so its author chose the data
    if limit is not None and limit != -1:
        settings["limit"] = limit
    if fewshot_as_multiturn and not settings.get("apply_chat_template"):
        fewshot_as_multiturn = None  # the default is True upstream, and has no effect without a template
    settings["fewshot_as_multiturn"] = fewshot_as_multiturn
    if task_manager is not None:
        settings["include_path"] = task_manager.include_path
        settings["metadata"] = {**task_manager.metadata, **dict(settings.get("metadata") or {})}
    if evaluation_tracker is not None:
        settings["output_path"] = getattr(evaluation_tracker, "output_path", None)
    run = api.run(**{name: value for name, value in settings.items() if value is not None})
    try:
        results: dict[str, Any] = build_results(run)
        if log_samples:
            results["samples"] = {task: list(iterate_samples(run, task, as_text=False)) for task in run.tasks}
    finally:
        run.close()
    return results


def get_task_dict(
    task_name_list: Any, task_manager: TaskManager | None = None, task_type: str = ""
) -> dict[str, Any]:
    """Return task objects by name for `evaluate`; those of a group below the name of the group."""
    manager = task_manager or TaskManager()
    listed = _to_list(task_name_list)
    found: dict[str, Any] = {}
    for item in listed:
        tasks, groups = load_tasks([item], manager.index, manager.metadata)
        inside = {member for members in groups.values() for member in members}
        outer = [name for name in groups if name not in inside]
        found.update({outer[0]: tasks} if outer else tasks)
    return found


def evaluate(lm: Any, task_dict: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Evaluate a model object on the tasks of `get_task_dict` or `TaskManager.load`; return results as lm-eval does."""
    return simple_evaluate(lm, tasks=_find_requested(task_dict), **options)


def _find_requested(task_dict: Mapping[str, Any]) -> list[Any]:
    """Return what to run: groups as a whole unless the script changed one of their tasks."""
    if "tasks" in task_dict and "groups" in task_dict:
        inside = {member for members in task_dict["groups"].values() for member in members}
        tasks = {name: task for name, task in task_dict["tasks"].items() if name not in inside}
        outer = [name for name in task_dict["groups"] if name not in inside]
        return [*outer, *tasks.values()]
    wanted: list[Any] = []
    for name, value in task_dict.items():
        if isinstance(value, Mapping):
            changed = any(getattr(task, "changes", None) for task in value.values())
            wanted += list(value.values()) if changed else [str(name)]
        else:
            wanted.append(value if value is not None else name)
    return wanted


def _to_list(tasks: Any) -> list[Any]:
    return [tasks] if isinstance(tasks, (str, Mapping)) else list(tasks or ())


def _translate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Translate arguments of `simple_evaluate` to options of `assay.run`."""
    settings: dict[str, Any] = {}
    for name, value in options.items():
        if name in _SAME_OPTIONS:
            settings[name] = value
        elif name == "max_tokens":
            if value is not None:
                settings["gen_kwargs"] = f"max_new_tokens={value}"
        elif name == "repeats":
            settings[name] = (
                value if value != 1 else None
            )  # the default is 1 upstream, and means the setting of the task
        elif name == "cli_args":  # lmms-eval reads from it what its command line would set
            if value is not None:
                settings["reasoning_tags"] = getattr(value, "reasoning_tags", None) or "none"
        elif name == "baseline":
            if value is not None:
                raise InvalidOption(
                    "`baseline` is not supported",
                    where="simple_evaluate",
                    hint="use `assay.compare` to compare runs",
                )
        elif name in _IGNORED_OPTIONS or name in _SEEDS:
            continue
        else:
            raise InvalidOption(f"unknown argument `{name}`", where="simple_evaluate")
    if any(name in options for name in _SEEDS):
        settings["seed"] = [
            options.get(name, default) for name, default in zip(_SEEDS, _DEFAULT_SEEDS, strict=True)
        ]
    return settings


def _find_words(tasks: Any, manager: TaskManager) -> list[str]:
    listed = _to_list(tasks)
    if not listed:
        raise InvalidOption(
            "missing argument: tasks", where="simple_evaluate", hint='pass tasks=["arc_easy"]'
        )
    return (
        find_task_words(listed, manager.index) if any(not isinstance(one, str) for one in listed) else listed
    )


def _wrap_model(model: Any, settings: dict[str, Any]) -> Any:
    """Wrap an lm-eval model object; its responses are not shared through the cache."""
    from assay.core.ports import Model
    from assay_compat.models.lm_eval_model import LmEvalModel
    from assay_compat.models.lmms_eval_model import LmmsEvalModel, is_lmms_class

    if isinstance(model, Model):
        return model
    settings["no_cache"] = True
    if settings.pop("use_cache", None):
        sys.stderr.write("note: use_cache: responses of a model object are stored only in its run\n")
    return LmmsEvalModel(model) if is_lmms_class(type(model)) else LmEvalModel(model)
