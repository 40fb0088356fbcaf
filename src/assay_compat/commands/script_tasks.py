"""Tasks as scripts of lm-eval and lmms-eval handle them: names, dictionaries, task classes and task objects.

A run needs task files. A dictionary or an object becomes a file in `./assay-runs/script-tasks`, in a folder named by its
content, so that repeating a script continues its run. Functions in a dictionary are looked up in this process.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import InvalidOption
from assay.core.fingerprints import digest_text
from assay.core.records.specs import TaskSpec
from assay.tasks.data.splits import resolve_data_paths
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.index import TaskIndex
from assay.tasks.files.selection import select_tasks
from assay.tasks.task import RenderingOptions, Task, open_task
from assay_compat import lm_eval_task_bases
from assay_compat.class_task_config import TaskConfig

__all__ = ["ScriptTask", "find_task_words", "get_function", "load_tasks", "write_task_file"]

_FOLDER = Path("assay-runs") / "script-tasks"
_functions: dict[str, Callable[..., Any]] = {}
"""The functions in task dictionaries of this process, by the name under which a task file refers to them."""


def get_function(name: str) -> Callable[..., Any]:
    """Return a function of a task dictionary. Generated helper files call this.

    Raises:
        InvalidOption: Another process defined the function.
    """
    if name not in _functions:
        raise InvalidOption(
            f"the function `{name}` of a task dictionary exists only in the process of the script",
            where="tasks",
            hint="run the script again, or write the task to a YAML file with `!function`",
        )
    return _functions[name]


class _Function(str):
    """A `!function` reference in a generated task file."""


class _Dumper(yaml.SafeDumper):
    """Writes task files."""


_Dumper.add_representer(_Function, lambda dumper, value: dumper.represent_scalar("!function", str(value)))


def write_task_file(config: Mapping[str, Any], index: TaskIndex) -> str:
    """Write a task or group that a script defines as a dictionary; return the path of its file.

    A dictionary with the name of a known task changes that task.
    """
    name = config.get("task") if isinstance(config.get("task"), str) else config.get("group")
    if not isinstance(name, str):
        raise InvalidOption("a task dictionary needs `task: NAME` or `group: NAME`", where="tasks")
    known = index.entries.get(name)
    content = dict(config)
    if known is not None and known.kind == "task" and "class" not in config:
        content = {**_include_task(select_tasks([name], index).tasks[name]), **content}
    used: dict[str, str] = {}
    plain = _replace_functions(content, used)
    text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    folder = _FOLDER / digest_text(text, *sorted(used))[:12]
    folder.mkdir(parents=True, exist_ok=True)
    if used:
        lines = ["from assay_compat.commands.script_tasks import get_function\n"]
        lines += [f"{short} = get_function({key!r})\n" for key, short in used.items()]
        (folder / "script_functions.py").write_text("".join(lines), encoding="utf-8")
    path = folder / f"{name.replace(os.sep, '_')}.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _include_task(base: TaskSpec) -> dict[str, Any]:
    """Return the keys of a file elsewhere that includes a task. Its data files are relative to the original file."""
    keys: dict[str, Any] = {"include": str(Path(base.path).resolve()), "dialect": str(base.dialect)}
    if base.dataset_kwargs.get("data_files") or base.dataset_kwargs.get("data_dir"):
        keys["dataset_kwargs"] = resolve_data_paths(base)
    return keys


def _replace_functions(value: Any, used: dict[str, str]) -> Any:
    """Return a value of a dictionary as YAML can express it, with a reference for each function."""
    if isinstance(value, Mapping):
        return {str(key): _replace_functions(item, used) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_functions(item, used) for item in value]
    if isinstance(value, HelperFunction):
        value = value.load()
    if not callable(value):
        return str(value) if isinstance(value, str) else value
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):  # built in, or typed in a session without source
        source = repr(getattr(value, "__code__", value))
    title = "".join(letter if letter.isalnum() else "_" for letter in getattr(value, "__name__", "function"))
    key = f"{title}_{digest_text(source)[:10]}"
    _functions[key] = value
    used[key] = key
    return _Function(f"script_functions.{key}")


class ScriptTask:
    """A task object of `get_task_dict`: its configuration and its documents. Data is loaded on first access."""

    def __init__(self, name: str, index: TaskIndex, metadata: Mapping[str, Any] | None = None) -> None:
        self.task_name = name
        self._index = index
        self._metadata = dict(metadata or {})
        self.changes: dict[str, Any] = {}
        """The keys that `set_config` changed."""

    def __repr__(self) -> str:
        return f"ScriptTask(task_name={self.task_name!r}, output_type={self.OUTPUT_TYPE!r})"

    @cached_property
    def spec(self) -> TaskSpec:
        """The task file after its includes."""
        return select_tasks([self.task_name], self._index).tasks[self.task_name]

    @cached_property
    def _task(self) -> Task:
        return open_task(
            self.spec,
            RenderingOptions(
                data_root=os.environ.get("ASSAY_DATA"), allow_data_outside=True, metadata=self._metadata
            ),
        )

    @property
    def config(self) -> TaskConfig:
        """The keys of the task file, as attributes."""
        return TaskConfig({**self._task.spec.config, **self.changes})

    @property
    def OUTPUT_TYPE(self) -> str:  # noqa: N802 - lm-eval's name
        return str(self._task.spec.output_type)

    @property
    def VERSION(self) -> Any:  # noqa: N802 - lm-eval's name
        return self._task.spec.version

    @property
    def dataset(self) -> Mapping[str, Any]:
        """The splits of the dataset."""
        return self._task.splits

    def dump_config(self) -> dict[str, Any]:
        """Return the configuration as a dictionary."""
        return self.config.to_dict()

    def get_config(self, key: str) -> Any:
        """Return one key of the configuration."""
        return self.config.get(key)

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Change one key of the task for the evaluation; `update` merges a mapping."""
        self.changes[key] = {**(self.get_config(key) or {}), **value} if update else value

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        """Accepted for scripts of lm-eval; the seed is an argument of `evaluate`."""

    def has_training_docs(self) -> bool:
        return self._task.spec.training_split is not None

    def has_validation_docs(self) -> bool:
        return self._task.spec.validation_split is not None

    def has_test_docs(self) -> bool:
        return self._task.spec.test_split is not None

    def training_docs(self) -> Any:
        """Return the documents of the training split after `process_docs`."""
        return self._load("training_split")

    def validation_docs(self) -> Any:
        """Return the documents of the validation split after `process_docs`."""
        return self._load("validation_split")

    def test_docs(self) -> Any:
        """Return the documents of the test split after `process_docs`."""
        return self._load("test_split")

    def fewshot_docs(self) -> Any:
        """Return the documents that examples are drawn from."""
        return self._task.fewshot_pool

    def _load(self, key: str) -> Any:
        name = getattr(self._task.spec, key)
        return None if name is None else self._task.load_split(name, self._task.spec.process_docs, key)

    @property
    def eval_docs(self) -> Any:
        """The evaluated documents."""
        return self._task.rows

    @property
    def eval_docs_no_media(self) -> Any:
        """The evaluated documents without columns of images and audio."""
        return _remove_media(self.eval_docs)

    def test_docs_no_media(self) -> Any:
        """Return the documents of the test split without columns of images and audio."""
        return _remove_media(self.test_docs())

    def validation_docs_no_media(self) -> Any:
        """Return the documents of the validation split without columns of images and audio."""
        return _remove_media(self.validation_docs())

    def doc_to_text(self, doc: Mapping[str, Any]) -> Any:
        """Return the question of a document."""
        return self._task.question(doc)

    def doc_to_target(self, doc: Mapping[str, Any]) -> Any:
        """Return the target of a document."""
        return self._task.target(doc)

    def doc_to_choice(self, doc: Mapping[str, Any]) -> Any:
        """Return the choices of a document."""
        return self._task.choices(doc)

    def higher_is_better(self) -> dict[str, bool | None]:
        """Return the direction of each metric."""
        return {entry.name: entry.higher_is_better for entry in self._task.spec.metrics}


def _remove_media(rows: Any) -> Any:
    features = getattr(rows, "features", {})
    media = [name for name in features if type(features[name]).__name__ in ("Image", "Audio", "Video")]
    if hasattr(rows, "remove_columns") and media:
        return rows.remove_columns(media)
    return [{key: row[key] for key in row if key not in media} for row in rows] if media else rows


def load_tasks(
    listed: Iterable[Any], index: TaskIndex, metadata: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Load names, dictionaries and objects; return task objects by name, and the members of each group."""
    tasks: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    for item in map(_create_object, listed):
        if isinstance(item, (ScriptTask, lm_eval_task_bases.Task)):
            tasks[item.task_name] = item
            continue
        word = item if isinstance(item, str) else write_task_file(item, index)
        selection = select_tasks([word], index)
        local = index
        if not isinstance(item, str):
            local = index.with_neighbours(Path(word))
        for name in selection.tasks:
            tasks[name] = ScriptTask(name, local, metadata)
        for name in selection.groups:
            groups[name] = list(selection.groups[name].members)
    return tasks, groups


def find_task_words(tasks: Iterable[Any], index: TaskIndex) -> list[str]:
    """Return names and task files for `assay.run`."""
    words = []
    for item in map(_create_object, tasks):
        if isinstance(item, ScriptTask):
            known = index.entries.get(item.task_name)
            path = item.spec.path
            if item.changes:
                changed = {**_include_task(item.spec), "task": item.task_name, **item.changes}
                words.append(write_task_file(changed, TaskIndex()))
            else:
                words.append(item.task_name if known is not None and known.file == path else path)
        elif isinstance(item, lm_eval_task_bases.Task):
            words.append(write_task_file(_describe_object(item), index))
        elif isinstance(item, Mapping):
            words.append(write_task_file(item, index))
        elif isinstance(item, (str, Path)):
            words.append(str(item))
        else:
            raise InvalidOption(
                f"a task must be a name, a YAML file, a dictionary or a task object, not {type(item).__name__}",
                where="tasks",
            )
    return words


def _create_object(item: Any) -> Any:
    """Return an object for a task class; return everything else unchanged."""
    return item() if isinstance(item, type) and issubclass(item, lm_eval_task_bases.Task) else item


def _describe_object(task: lm_eval_task_bases.Task) -> dict[str, Any]:
    """Return the dictionary of a task object that a script has created from a class."""
    config = {key: value for key, value in task.config.items() if value is not None}
    name = config.get("task") or type(task).__name__
    if type(task) in (lm_eval_task_bases.Task, lm_eval_task_bases.ConfigurableTask):
        return {**config, "task": name}
    return {**config, "task": name, "class": type(task)}
