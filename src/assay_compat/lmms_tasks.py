"""Tasks of lmms-eval written as Python classes: what they derive from, and how they are asked.

Such a class brings its own data: it overrides `download` and sets `self.dataset`. What is asked and how it is judged
stands in the YAML file, so the task is an ordinary one on that data.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from assay.core.errors import AssayError, BadTask, MissingPackage
from assay.core.specs import TaskSpec
from assay.tasks.data import load_splits
from assay.tasks.functions import HelperFunction
from assay.tasks.load import task_from_config
from assay.tasks.task import Rendering, Task
from assay.tasks.yaml_reader import TaskFile
from assay_compat.class_config import TaskConfig

__all__ = ["ConfigurableTask", "is_lmms_class", "open_lmms_task"]


class ConfigurableTask:
    """The base of lmms-eval's class tasks. Nothing is downloaded before the task is opened."""

    CONFIG: ClassVar[Any] = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None

    dataset: Any = None
    asked_with: tuple[TaskSpec, Rendering] | None = None
    """The YAML file's task and the options of the run."""

    def __init__(
        self,
        data_dir: Any = None,
        cache_dir: Any = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
        model_name: str | None = None,
    ) -> None:
        self._config = TaskConfig({**(self.CONFIG or {}), **(config or {})})
        self.model_name = model_name

    @property
    def config(self) -> TaskConfig:
        return self._config

    @property
    def task_name(self) -> str:
        return str(self.config.task)

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None) -> None:
        """Load the dataset and prepare its splits; a class may do it its own way."""
        assert self.asked_with is not None
        spec, rendering = self.asked_with
        loaded = load_splits(
            replace(spec, dataset_kwargs=dict(dataset_kwargs or {})),
            data_root=rendering.data_root,
            trust_remote_code=rendering.trust_remote_code,
        )
        named = {spec.training_split, spec.validation_split, spec.test_split, spec.fewshot_split}
        process = spec.process_docs
        self.dataset = {
            name: process(rows) if process is not None and name in named else rows
            for name, rows in loaded.items()
        }


def is_lmms_class(named: Any) -> bool:
    """Whether `class:` names a task class of lmms-eval's kind."""
    kind = named.load() if isinstance(named, HelperFunction) else named
    return isinstance(kind, type) and issubclass(kind, ConfigurableTask)


def open_lmms_task(spec: TaskSpec, rendering: Rendering | None, splits: Mapping[str, Any] | None) -> Task:
    """The task a YAML file with a class describes, on the data of the class."""
    options = rendering or Rendering()
    config = {key: value for key, value in spec.config.items() if key != "class"}
    stock = task_from_config(
        TaskFile(Path(spec.path), {**config, "dialect": "lmms_eval"}, spec.places), name=spec.name
    )
    if splits is not None:
        return Task(stock, options, splits)
    try:
        subject = _made(spec.config["class"], config, options)
        subject.asked_with = (stock, options)
        subject.download(subject.config.dataset_kwargs)
    except AssayError:
        raise
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error.name or "?", f"the task `{spec.name}`", where=spec.path) from None
    except Exception as error:  # helper border: the class is foreign code
        raise BadTask(
            f"the class of the task `{spec.name}` fails: {type(error).__name__}: {error}",
            where=spec.place("class"),
        ) from error
    return Task(replace(stock, process_docs=None), options, subject.dataset)


def _made(named: Any, config: Mapping[str, Any], options: Rendering) -> Any:
    kind = named.load() if isinstance(named, HelperFunction) else named
    takes = inspect.signature(kind.__init__).parameters
    return kind(config=dict(config)) if "config" in takes else kind()
