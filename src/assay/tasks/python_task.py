"""Tasks that are defined in Python: `PythonTask`, public as `assay.Task`, and dictionaries with the keys of a task file.

Such a task is saved as a folder with a task file, its documents and the source of its functions. A run uses this folder,
so that it can be resumed, scored again and verified in another process.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import DatasetError, TaskError, UnknownName
from assay.core.fingerprints import digest_bytes, digest_text
from assay.core.function_sources import SourceFile
from assay.core.terminal_text import describe_invalid_name
from assay.tasks.data.local_files import SUFFIXES, read_files
from assay.tasks.files.helper_functions import use_live_function
from assay.tasks.files.index import TaskIndex, find_task_roots
from assay.tasks.files.task_loader import TASK_KEYS
from assay.tasks.files.yaml_reader import read_task_file

__all__ = ["PythonTask", "add_base_task", "save_task_config"]

_FUNCTIONS_FILE = "functions.py"
_MEDIA_FEATURES = ("Image", "Audio", "Video")
_DIGEST_LENGTH = 12


class PythonTask:
    """A task defined in Python. `assay.run(tasks=[task])` runs it.

    >>> PythonTask(name="capitals", documents=[{"country": "Peru", "capital": "Lima"}],
    ...            prompt="The capital of {{country}} is", target="capital")
    Task('capitals', 1 document, generate_until, exact_match)
    """

    def __init__(
        self,
        *,
        name: str,
        documents: Any,
        prompt: str | Callable[[dict[str, Any]], Any],
        target: Any = None,
        choices: Any = None,
        metric: Any = None,
        filters: Sequence[Any] = (),
        fewshot: Any = None,
        **keys: Any,
    ) -> None:
        """Define a task. Nothing is read or saved before it is used.

        Args:
            name: The name in tables and files.
            documents: A list of dictionaries, a data frame of pandas or polars, a `datasets.Dataset`, or the path of a json,
                jsonl, csv or tsv file.
            prompt: A Jinja template, the name of a column, or a function of a document.
            target: The expected answer: a template, the name of a column, or a function of a document. With `choices`, it may
                also be the index of the correct choice.
            choices: The answers to choose from: a list, the name of a column, a template, or a function of a document.
            metric: The name of a metric, a function `(answer, target) -> float`, or a list of both. Default: `exact_match`; with
                `choices` `acc` and `acc_norm`.
            filters: Steps that extract the answer: names of filters, mappings with `function` and arguments, or functions of a
                text.
            fewshot: Documents for few-shot examples, in the same forms as `documents`.
            **keys: Further keys of a task file: `generation_kwargs`, `num_fewshot`, `description`, …

        Raises:
            TaskError: An argument is invalid.
        """
        self.name = name
        self.documents = documents
        self.prompt = prompt
        self.target = target
        self.choices = choices
        self.metric = metric
        self.filters = filters
        self.fewshot = fewshot
        self.keys = keys
        if not isinstance(self.name, str) or not self.name:
            raise TaskError("a task needs a name", where="assay.Task", hint='name="my_task"')
        if problem := describe_invalid_name(self.name):
            raise TaskError(problem, where="assay.Task", hint="use letters, digits, `_`, `-`, `.`")
        if not isinstance(self.prompt, str) and not callable(self.prompt):
            raise TaskError(
                f"`prompt` must be a template or a function, not {type(self.prompt).__name__}",
                where=self._where,
                hint='prompt="{{question}}", or prompt=lambda document: …',
            )
        if isinstance(self.filters, str) or not isinstance(self.filters, Sequence):
            raise TaskError("`filters` must be a list", where=self._where, hint='filters=["lowercase"]')
        for key in keys:
            if key not in TASK_KEYS:
                close = get_close_matches(key, TASK_KEYS, n=1)
                guess = f"did you mean `{close[0]}`? " if close else ""
                hint = f"{guess}other keywords are the keys of a task file"
                raise UnknownName(f"no key of a task is called `{key}`", where=self._where, hint=hint)

    @property
    def _where(self) -> str:
        return f"assay.Task {self.name}"

    @property
    def output_type(self) -> str:
        """`multiple_choice` for a task with choices, else `generate_until`, unless `keys` set it."""
        default = "generate_until" if self.choices is None else "multiple_choice"
        return str(self.keys.get("output_type", default))

    def to_config(self) -> dict[str, Any]:
        """Return the keys of the task file without its data. Functions are values."""
        config: dict[str, Any] = {
            "task": self.name,
            "output_type": self.output_type,
            "doc_to_text": self.prompt,
            "doc_to_target": self.target,
            "doc_to_choice": self.choices,
        }
        if metrics := self._list_metrics():
            config["metric_list"] = metrics
        if self.filters:
            steps = [_build_filter_step(step, self._where) for step in self.filters]
            if not any(
                step.get("function") in ("take_first", "majority_vote", "take_first_k") for step in steps
            ):
                steps.append({"function": "take_first"})
            config["filter_list"] = [{"name": "extracted", "filter": steps}]
        config = {key: value for key, value in config.items() if value is not None}
        return {**config, "metadata": {"version": 1.0}, **self.keys}

    def _list_metrics(self) -> list[dict[str, Any]]:
        if "metric_list" in self.keys or "process_results" in self.keys:
            return []
        default = ["exact_match"] if self.choices is None else ["acc", "acc_norm"]
        given = default if self.metric is None else self.metric
        listed = list(given) if isinstance(given, (list, tuple)) else [given]
        metrics = []
        for one in listed:
            if isinstance(one, Mapping):
                metrics.append(dict(one))
            elif isinstance(one, str):
                metrics.append({"metric": one})
            elif callable(one):
                metrics.append({"metric": one, "aggregation": "mean", "higher_is_better": True})
            else:
                raise TaskError(
                    f"a metric must be a name or a function, not {one!r:.60}",
                    where=self._where,
                    hint='metric="exact_match", or metric=lambda answer, target: …',
                )
        return metrics

    def save(self, folder: str | Path) -> Path:
        """Save the task in its own folder inside `folder`, and return the path of its task file.

        The folder is named after its content. `assay run --tasks PATH` runs the task.

        Raises:
            TaskError: A value cannot be written to a task file.
            DatasetError: The documents cannot be saved.
        """
        data = {"test": self.documents, **({} if self.fewshot is None else {"fewshot": self.fewshot})}
        return save_task_config(self.to_config(), Path(folder), data=data, where=self._where)

    def __repr__(self) -> str:
        metrics = ", ".join(_find_name(one["metric"]) for one in self._list_metrics())
        size = len(self.documents) if hasattr(self.documents, "__len__") else None
        count = "documents" if size is None else f"{size:,} document{'' if size == 1 else 's'}"
        if isinstance(self.documents, (str, Path)):
            count = str(self.documents)
        return (
            ", ".join([f"Task({self.name!r}", count, self.output_type, *([metrics] if metrics else [])]) + ")"
        )


def save_task_config(
    config: Mapping[str, Any], folder: Path, *, data: Mapping[str, Any] | None = None, where: str = "tasks"
) -> Path:
    """Save a dictionary with the keys of a task file, its functions and its data; return the path of the task file.

    `data`: the documents by split. Functions are called directly in this process; others load them from the saved source.
    """
    name = str(config.get("task") or config.get("group") or "")
    if not name:
        raise TaskError("a task needs a name", where=where, hint="add the key `task`")
    where = where if where != "tasks" else f"task {name}"
    functions: dict[str, Callable[..., Any]] = {}
    source = SourceFile()
    plain = _replace_functions(dict(config), functions, source, where)
    if included := plain.get("include"):
        names = included if isinstance(included, list) else [included]
        plain["include"] = [str(Path(name).resolve()) for name in names]
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder))
    try:
        if data:
            plain |= _write_data(data, made, where)
        elif "include" in plain:
            _copy_included_data(plain["include"], made)
        if functions:
            (made / _FUNCTIONS_FILE).write_text(source.render(), encoding="utf-8")
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "task"
        (made / f"{slug}.yaml").write_text(_dump_yaml(plain, where), encoding="utf-8")
        made.chmod(0o755)
        target = folder / f"{slug}-{_digest_folder(made)[:_DIGEST_LENGTH]}"
        if not target.exists():
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    for label, function in functions.items():
        use_live_function(target / _FUNCTIONS_FILE, label, function)
    return target / f"{slug}.yaml"


def add_base_task(config: Mapping[str, Any], include_path: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return a config that includes the file of a known task if it only overrides some of its keys.

    `{"task": "gsm8k", "num_fewshot": 2}` is the task `gsm8k` with two examples.
    """
    if any(
        config.get(key) is not None for key in ("dataset_path", "custom_dataset", "include", "class", "group")
    ):
        return config
    index = TaskIndex.build(find_task_roots(include_path))
    entry = index.entries.get(str(config.get("task")))
    if entry is None and config.get("task") and config.get("doc_to_text") is None:
        raise UnknownName.of("task", str(config["task"]), index.names(), where="tasks")
    if entry is None or entry.path is None or entry.kind != "task":
        return config
    return {"include": str(entry.path), **config}


def _digest_folder(folder: Path) -> str:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return digest_text(*(part for file in files for part in (file.name, digest_bytes(file.read_bytes()))))


def _copy_included_data(include: Any, folder: Path) -> None:
    """Copy the data files of an included task file, whose paths are relative to the file that includes it."""
    for name in include if isinstance(include, list) else [include]:
        included = read_task_file(Path(name))
        arguments = included.config.get("dataset_kwargs")
        if not isinstance(arguments, Mapping):
            continue
        data_dir = arguments.get("data_dir")
        data_files = arguments.get("data_files", "**/*" if data_dir else [])
        for entry in data_files.values() if isinstance(data_files, Mapping) else [data_files]:
            for pattern in entry if isinstance(entry, list) else [entry]:
                _copy_matches(included.path.parent, Path(data_dir or ".", str(pattern)), folder)


def _copy_matches(source: Path, pattern: Path, folder: Path) -> None:
    """Copy the files inside `source` that match a relative pattern to the same place inside `folder`."""
    if pattern.is_absolute() or ".." in pattern.parts or "://" in str(pattern):
        return
    try:
        found = [file for file in source.glob(str(pattern)) if file.is_file()]
    except (OSError, ValueError, NotImplementedError):  # not a valid pattern
        return
    for file in found:
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


# --- functions and YAML ----------------------------------------------------------------------------


class _FunctionReference(str):
    """A name that is written as `!function NAME`."""


def _replace_functions(
    value: Any, functions: dict[str, Callable[..., Any]], source: SourceFile, where: str, key: str = ""
) -> Any:
    """Return a value with references instead of functions, and collect the functions by name."""
    if isinstance(value, Mapping):
        return {
            str(name): _replace_functions(item, functions, source, where, str(name))
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_replace_functions(item, functions, source, where, key) for item in value]
    if callable(value) and not isinstance(value, type):
        own = _find_name(value)
        name = own if own.isidentifier() else key
        number = 1
        while functions.get(name, value) is not value:
            number += 1
            name = f"{own if own.isidentifier() else key}_{number}"
        if name not in functions:
            functions[name] = value
            source.add(name, value)
        return _FunctionReference(f"functions.{name}")
    return value


def _find_name(function: Any) -> str:
    """Return the name of a function, or of a metric given by name."""
    if isinstance(function, str):
        return function
    name = getattr(function, "__name__", None) or type(function).__name__
    return str(name)


def _build_filter_step(step: Any, where: str) -> dict[str, Any]:
    if isinstance(step, str):
        return {"function": step}
    if isinstance(step, Mapping) and step.get("function") is not None:
        return dict(step)
    if callable(step) and not isinstance(step, type):
        return {"function": "call", "text_fn": step}
    raise TaskError(
        f"a filter must be a name, a mapping with `function`, or a function, not {step!r:.60}",
        where=where,
        hint='filters=["lowercase", {"function": "regex", "regex_pattern": "(\\\\d+)"}]',
    )


class _TaskDumper(yaml.SafeDumper):
    """Writes functions as `!function` and long texts readably."""


_TaskDumper.add_representer(
    _FunctionReference, lambda dumper, value: dumper.represent_scalar("!function", str(value))
)


def _dump_yaml(config: Mapping[str, Any], where: str) -> str:
    try:
        return yaml.dump(dict(config), Dumper=_TaskDumper, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        wrong = next((key for key, value in config.items() if not _can_dump(value)), "")
        value = config.get(wrong)
        raise TaskError(
            f"`{wrong}` has a value that a task file cannot contain: {type(value).__name__}",
            where=where,
            hint="use texts, numbers, lists, dictionaries and functions",
        ) from None


def _can_dump(value: Any) -> bool:
    try:
        yaml.dump(value, Dumper=_TaskDumper)
    except yaml.YAMLError:
        return False
    return True


# --- documents -------------------------------------------------------------------------------------


def _write_data(data: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """Write the documents of each split, and return the keys of the task file that read them."""
    kinds, files = set(), {}
    for split, documents in data.items():
        stem = "documents" if split == "test" else split
        if _has_media(documents):
            kinds.add("parquet")
            files[split] = f"{stem}.parquet"
            _write_parquet(documents, folder / files[split])
        else:
            kinds.add("json")
            files[split] = f"{stem}.jsonl"
            rows = _list_rows(documents, split, where)
            lines = [_to_json_line(row, index, where) for index, row in enumerate(rows)]
            (folder / files[split]).write_text("".join(lines), encoding="utf-8")
    if len(kinds) > 1:
        raise DatasetError("`documents` and `fewshot` must both have media columns, or neither", where=where)
    keys = {"dataset_path": kinds.pop(), "dataset_kwargs": {"data_files": files}, "test_split": "test"}
    return {**keys, **({"fewshot_split": "fewshot"} if "fewshot" in data else {})}


def _write_parquet(dataset: Any, path: Path) -> None:
    """Write a dataset with its media columns, without the progress bar of the library."""
    datasets = import_module("datasets")
    datasets.disable_progress_bars()
    dataset.to_parquet(str(path))


def _has_media(documents: Any) -> bool:
    features = getattr(documents, "features", None)
    return (
        isinstance(features, Mapping)
        and hasattr(documents, "to_parquet")
        and any(type(feature).__name__ in _MEDIA_FEATURES for feature in features.values())
    )


def _list_rows(documents: Any, split: str, where: str) -> list[Mapping[str, Any]]:
    """Return the documents as mappings."""
    if isinstance(documents, (str, Path)):
        if Path(documents).suffix not in SUFFIXES:
            raise DatasetError(
                f"unsupported file `{documents}`", where=where, hint=f"use one of: {', '.join(SUFFIXES)}"
            )
        documents = read_files([str(documents)])
    elif isinstance(documents, Mapping):
        raise DatasetError(
            "`documents` is a mapping, not a list",
            where=where,
            hint=f"choose a split: {', '.join(map(str, list(documents)[:4]))}"
            if documents
            else "pass a list of dictionaries",
        )
    elif hasattr(documents, "to_dicts"):  # polars
        documents = documents.to_dicts()
    elif hasattr(documents, "to_dict") and hasattr(documents, "columns"):  # pandas
        documents = documents.to_dict("records")
    if not isinstance(documents, Iterable):
        raise DatasetError(
            f"`documents` must be a list of dictionaries, a data frame or a dataset, not {type(documents).__name__}",
            where=where,
        )
    rows = list(documents)
    if not rows:
        raise DatasetError(
            f"there are no documents in `{'documents' if split == 'test' else split}`", where=where
        )
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DatasetError(
                f"document {index} is not a dictionary but {type(row).__name__}",
                where=where,
                hint='documents=[{"question": "…", "answer": "…"}]',
            )
    return rows


def _to_json_line(row: Mapping[str, Any], index: int, where: str) -> str:
    plain = {}
    for column, value in row.items():
        try:
            plain[str(column)] = _to_json(value)
        except TypeError:
            raise DatasetError(
                f"column `{column}` of document {index} has a value that cannot be saved: {type(value).__name__}",
                where=where,
                hint="use texts, numbers, lists and dictionaries; for media pass a datasets.Dataset with a media column",
            ) from None
    text = json.dumps(plain, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates
        text = json.dumps(plain)
    return f"{text}\n"


def _to_json(value: Any) -> Any:
    """Return a value of a document as JSON. A missing number of a data frame is null."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):  # missing values of pandas
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, (date, time)):
        return value.isoformat()
    if hasattr(value, "tolist"):  # NumPy
        return _to_json(value.tolist())
    raise TypeError
