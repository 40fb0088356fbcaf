"""The Python API of lm-eval and lmms-eval for scripts: `simple_evaluate` and `TaskManager`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from assay.core.errors import InvalidOption

__all__ = ["TaskManager", "evaluate", "get_task_dict", "simple_evaluate"]

_IGNORED_OPTIONS = frozenset(
    "max_batch_size cache_requests rewrite_requests_cache delete_requests_cache check_integrity write_out verbosity"
    " datetime_str distributed_executor_backend cli_args force_simple process_docs_parallel launcher_args".split()
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
        self.metadata = dict(metadata or {})

    @property
    def all_tasks(self) -> list[str]:
        """The names of all tasks, groups and tags."""
        from assay.tasks.files.index import TaskIndex, find_task_roots

        return TaskIndex.build(find_task_roots(self.include_path)).names()

    def match_tasks(self, task_list: Iterable[str]) -> list[str]:
        """Return the names that match a list of globs."""
        from fnmatch import fnmatchcase

        patterns = list(task_list)
        return [name for name in self.all_tasks if any(fnmatchcase(name, pattern) for pattern in patterns)]


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
    settings["model"] = model if isinstance(model, str) else _wrap_model(model, settings)
    if model_args and isinstance(model, str):
        settings["model_args"] = model_args
    settings["tasks"] = _validate_tasks(tasks)
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
            results["samples"] = {task: list(iterate_samples(run, task)) for task in run.tasks}
    finally:
        run.close()
    return results


def get_task_dict(
    task_name_list: str | Iterable[Any], task_manager: TaskManager | None = None, task_type: str = ""
) -> dict[str, Any]:
    """Return the tasks for `evaluate`, by name, with the index that they come from."""
    names = _validate_tasks(task_name_list)
    return {name: task_manager or TaskManager() for name in names}


def evaluate(lm: Any, task_dict: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Evaluate a model object on the tasks of `get_task_dict`; return results with the keys of lm-eval."""
    managers = [value for value in task_dict.values() if isinstance(value, TaskManager)]
    manager = managers[0] if managers else None
    return simple_evaluate(lm, tasks=list(task_dict), task_manager=manager, **options)


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


def _validate_tasks(tasks: Iterable[Any] | str | None) -> list[str]:
    names = [tasks] if isinstance(tasks, str) else list(tasks or ())
    if not names:
        raise InvalidOption(
            "missing argument: tasks", where="simple_evaluate", hint='pass tasks=["arc_easy"]'
        )
    for name in names:
        if not isinstance(name, str):
            raise InvalidOption(
                f"a task must be a name or a YAML file, not {type(name).__name__}",
                where="simple_evaluate",
                hint="write the task to a YAML file",
            )
    return [str(name) for name in names]


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
