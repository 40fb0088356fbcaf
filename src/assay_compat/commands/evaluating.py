"""`simple_evaluate`, as scripts and notebooks call it, on Assay."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from assay.core.errors import BadOption

__all__ = ["TaskManager", "simple_evaluate"]

_NO_EFFECT = frozenset(
    "max_batch_size cache_requests rewrite_requests_cache delete_requests_cache check_integrity write_out verbosity"
    " datetime_str distributed_executor_backend cli_args force_simple process_docs_parallel launcher_args".split()
)
"""Arguments that change no number, and that Assay has no use for."""

_SAME = frozenset(
    "num_fewshot batch_size device use_cache samples bootstrap_iters system_instruction apply_chat_template gen_kwargs"
    " predict_only confirm_run_unsafe_code metadata offset".split()
)
_SEEDS = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
_DEFAULT_SEEDS = (0, 1234, 1234, 1234)


class TaskManager:
    """Where tasks are found: the folders Assay looks into, and those of `include_path`."""

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
        """Every task, group and tag."""
        from assay.tasks.index import TaskIndex, default_roots

        return TaskIndex.build(default_roots(self.include_path)).names()

    def match_tasks(self, wanted: Iterable[str]) -> list[str]:
        """Those of the names that a list of globs means."""
        from fnmatch import fnmatchcase

        patterns = list(wanted)
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
    """Evaluate a model on tasks; the return value has the keys lm-eval's has.

    `model` is a name, or an object with lm-eval's methods (`generate_until`, `loglikelihood`, …). The run is kept in
    `./assay-runs` like any other, so that a call that was interrupted goes on when it is repeated.
    """
    from assay import api
    from assay.viewer.lm_eval_files import results_document, samples_rows

    settings = _settings(options)
    settings["model"] = model if isinstance(model, str) else _wrapped(model, settings)
    if model_args and isinstance(model, str):
        settings["model_args"] = model_args
    settings["tasks"] = _names(tasks)
    if limit is not None and limit != -1:
        settings["limit"] = limit
    if fewshot_as_multiturn and not settings.get("apply_chat_template"):
        fewshot_as_multiturn = None  # theirs is on by default, and means nothing without a template
    settings["fewshot_as_multiturn"] = fewshot_as_multiturn
    if task_manager is not None:
        settings["include_path"] = task_manager.include_path
        settings["metadata"] = {**task_manager.metadata, **dict(settings.get("metadata") or {})}
    if evaluation_tracker is not None:
        settings["output_path"] = getattr(evaluation_tracker, "output_path", None)
    run = api.run(**{name: value for name, value in settings.items() if value is not None})
    try:
        results: dict[str, Any] = results_document(run)
        if log_samples:
            results["samples"] = {task: list(samples_rows(run, task)) for task in run.tasks}
    finally:
        run.close()
    return results


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `assay.run` from arguments of `simple_evaluate`."""
    settings: dict[str, Any] = {}
    for name, value in options.items():
        if name in _SAME:
            settings[name] = value
        elif name == "max_tokens":
            if value is not None:
                settings["gen_kwargs"] = f"max_new_tokens={value}"
        elif name == "repeats":
            settings[name] = value if value != 1 else None  # theirs is 1 by default, and means the task's own
        elif name == "baseline":
            if value is not None:
                raise BadOption(
                    "`baseline` is not offered", where="simple_evaluate", hint="`assay.compare` compares runs"
                )
        elif name in _NO_EFFECT or name in _SEEDS:
            continue
        else:
            raise BadOption(f"`simple_evaluate` has no argument `{name}`", where="simple_evaluate")
    if any(name in options for name in _SEEDS):
        settings["seed"] = [
            options.get(name, default) for name, default in zip(_SEEDS, _DEFAULT_SEEDS, strict=True)
        ]
    return settings


def _names(tasks: Iterable[Any] | str | None) -> list[str]:
    names = [tasks] if isinstance(tasks, str) else list(tasks or ())
    if not names:
        raise BadOption("no task was named", where="simple_evaluate", hint='tasks=["arc_easy"]')
    for name in names:
        if not isinstance(name, str):
            raise BadOption(
                f"a task is given by its name or its YAML file, not as {type(name).__name__}",
                where="simple_evaluate",
                hint="write it into a YAML file",
            )
    return [str(name) for name in names]


def _wrapped(model: Any, settings: dict[str, Any]) -> Any:
    """An object of lm-eval's kind as a model of Assay's; its answers are nobody else's, so they are not shared."""
    from assay.core.ports import Model
    from assay_compat.commands.foreign_models import ForeignModel

    if isinstance(model, Model):
        return model
    settings["no_cache"] = True
    if settings.pop("use_cache", None):
        sys.stderr.write("note: use_cache: answers of a model given as an object are kept in its run only\n")
    return ForeignModel(model)
