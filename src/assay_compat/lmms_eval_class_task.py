"""Class tasks of lmms-eval: their base class and the adapter to Assay tasks.

Such a class overrides `download` and sets `self.dataset`. Prompts and scoring come from the YAML file, so the task is an
ordinary one on that data.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.records.specs import TaskSpec
from assay.tasks.data.splits import load_splits
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.task_loader import task_from_config
from assay.tasks.files.yaml_reader import TaskFile
from assay.tasks.task import RenderingOptions, Task
from assay_compat.class_task_config import TaskConfig

__all__ = ["ConfigurableTask", "is_lmms_class", "open_lmms_task"]


class ConfigurableTask:
    """Base class of lmms-eval's class tasks. Downloads nothing until the task is opened."""

    CONFIG: ClassVar[Any] = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None

    dataset: Any = None
    assay_context: tuple[TaskSpec, RenderingOptions] | None = None
    """The task spec of the YAML file and the rendering options of the run."""

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
        """Load the dataset and process its splits; subclasses may override this."""
        assert self.assay_context is not None
        spec, rendering = self.assay_context
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
    """Return whether `class:` names a task class of lmms-eval."""
    kind = named.load() if isinstance(named, HelperFunction) else named
    return isinstance(kind, type) and issubclass(kind, ConfigurableTask)


def open_lmms_task(
    spec: TaskSpec, rendering: RenderingOptions | None, splits: Mapping[str, Any] | None
) -> Task:
    """Open the task of a YAML file with the data of its class.

    lmms-eval creates the object without the name of the model, so entries for a model select nothing.
    """
    options = replace(rendering or RenderingOptions(), model_name="")
    config = {key: value for key, value in spec.config.items() if key != "class"}
    stock = task_from_config(
        TaskFile(Path(spec.path), {**config, "dialect": "lmms_eval"}, spec.places), name=spec.name
    )
    if splits is not None:
        return Task(stock, options, splits)
    try:
        subject = _create_task_object(spec.config["class"], config, options)
        subject.assay_context = (stock, options)
        subject.download(subject.config.dataset_kwargs)
    except AssayError:
        raise
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error.name or "?", f"the task `{spec.name}`", where=spec.path) from None
    except Exception as error:  # user code may raise anything
        raise TaskError(
            f"the class of the task `{spec.name}` failed: {type(error).__name__}: {error}",
            where=spec.place("class"),
        ) from error
    return Task(replace(stock, process_docs=None), options, subject.dataset)


def _create_task_object(named: Any, config: Mapping[str, Any], options: RenderingOptions) -> Any:
    kind = named.load() if isinstance(named, HelperFunction) else named
    parameters = inspect.signature(kind.__init__).parameters
    return kind(config=dict(config)) if "config" in parameters else kind()
