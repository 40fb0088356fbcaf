"""Base classes for class tasks of lm_eval: the implementation of `lm_eval.api.task`.

The methods have lm_eval's names, because subclasses override and call them. Data is downloaded on first access. Prompts
and requests are built in `lm_eval_class_task`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from assay.core.errors import TaskError
from assay.core.records.specs import TaskSpec
from assay.scoring.scorer import Scorer
from assay.stats.aggregations import AGGREGATIONS
from assay.tasks.data.splits import load_splits
from assay.tasks.files.task_loader import TASK_KEYS, task_from_config
from assay.tasks.files.yaml_reader import TaskFile
from assay.tasks.task import Task as StockTask
from assay_compat.class_task_config import TaskConfig
from assay_compat.class_task_splits import DocumentSplits
from assay_compat.shims.lm_eval.api.instance import Instance

__all__ = ["ConfigurableTask", "Task", "build_class_spec"]

_CLASS_ONLY_KEYS = frozenset(("class", "custom_dataset", "fewshot_split", "include", "process_docs"))


class Task:
    """The class interface of lm_eval."""

    VERSION: Any = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None
    OUTPUT_TYPE: str | None = None
    CONFIG: ClassVar[Any] = None
    MULTIMODAL: bool = False
    UNSAFE_CODE: bool = False

    assay_task: Any = None
    """The Assay task that wraps this object."""

    def __init__(
        self, data_dir: Any = None, cache_dir: Any = None, download_mode: Any = None, config: Any = None
    ) -> None:
        self._config = TaskConfig({**(self.CONFIG or {}), **(config or {})})
        metadata = self._config.metadata
        if isinstance(metadata, Mapping) and "version" in metadata:
            self.VERSION = metadata["version"]
        self.DATASET_PATH = self._config.dataset_path or self.DATASET_PATH
        self.DATASET_NAME = self._config.dataset_name or self.DATASET_NAME
        self.OUTPUT_TYPE = self._config.output_type or self.OUTPUT_TYPE

    @property
    def config(self) -> TaskConfig:
        return self._config

    @property
    def task_name(self) -> str:
        return str(self.config.task)

    # --- data --------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Any:
        """The dataset, downloaded on first access."""
        if "_dataset" not in self.__dict__:
            self.download(self.config.dataset_kwargs)
        return self.__dict__["_dataset"]

    @dataset.setter
    def dataset(self, value: Any) -> None:
        self.__dict__["_dataset"] = value

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> None:
        """Load the dataset; subclasses may override this and set `self.dataset`."""
        rendering = self.assay_task.rendering
        spec = TaskSpec(
            name=self.task_name,
            path=self.assay_task.path,
            dataset_path=self.DATASET_PATH,
            dataset_name=self.DATASET_NAME,
            dataset_kwargs=dict(dataset_kwargs or {}),
            custom_dataset=self.config.custom_dataset,
            metadata=dict(self.config.metadata or {}),
        )
        self.dataset = load_splits(
            spec, data_root=rendering.data_root, trust_remote_code=rendering.trust_remote_code
        )

    def has_training_docs(self) -> bool:
        return False

    def has_validation_docs(self) -> bool:
        return False

    def has_test_docs(self) -> bool:
        return False

    def training_docs(self) -> Iterable[Any]:
        return []

    def validation_docs(self) -> Iterable[Any]:
        return []

    def test_docs(self) -> Iterable[Any]:
        return []

    @property
    def eval_docs(self) -> Iterable[Any]:
        return self.test_docs() if self.has_test_docs() else self.validation_docs()

    def fewshot_docs(self) -> Iterable[Any]:
        if self.has_training_docs():
            return self.training_docs()
        return self.validation_docs() if self.has_validation_docs() else self.test_docs()

    def _process_doc(self, doc: Any) -> Any:
        return doc

    # --- requests ----------------------------------------------------------------------------------

    def doc_to_text(self, doc: Any) -> Any:
        raise NotImplementedError("doc_to_text")

    def doc_to_target(self, doc: Any) -> Any:
        raise NotImplementedError("doc_to_target")

    def doc_to_image(self, doc: Any) -> Any:
        raise NotImplementedError("doc_to_image")

    def doc_to_audio(self, doc: Any) -> Any:
        raise NotImplementedError("doc_to_audio")

    def doc_to_prefix(self, doc: Any) -> Any:
        return ""

    def should_decontaminate(self) -> bool:
        return False

    def doc_to_decontamination_query(self, doc: Any) -> Any:
        raise NotImplementedError("doc_to_decontamination_query")

    def fewshot_context(self, doc: Any, num_fewshot: int = 0, **_: Any) -> Any:
        """Return description, few-shot examples and question for a document."""
        return self.assay_task.context(doc)

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("construct_requests")

    # --- scoring -----------------------------------------------------------------------------------

    def process_results(self, doc: Any, results: Any) -> Any:
        raise NotImplementedError("process_results")

    def aggregation(self) -> Mapping[str, Callable[..., Any]]:
        raise NotImplementedError("aggregation")

    def higher_is_better(self) -> Mapping[str, bool]:
        raise NotImplementedError("higher_is_better")

    def get_config(self, key: str) -> Any:
        return self.config[key]

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Set a config key, or update the mapping stored under it."""
        self.config[key] = {**(self.config[key] or {}), **value} if update else value

    @classmethod
    def count_bytes(cls, doc: str) -> int:
        return len(doc.encode("utf-8"))

    @classmethod
    def count_words(cls, doc: str) -> int:
        return len(doc.split())


class ConfigurableTask(Task):
    """A task that follows its config unless the class overrides a method."""

    VERSION = "Yaml"

    @cached_property
    def _stock(self) -> StockTask:
        """An ordinary task with the same config on this object's documents."""
        spec = build_class_spec(self, self.assay_task.name, self.assay_task.path)
        return StockTask(spec, self.assay_task.rendering, DocumentSplits(self))

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer.from_spec(self._stock.spec)

    def has_training_docs(self) -> bool:
        return self.config.training_split is not None

    def has_validation_docs(self) -> bool:
        return self.config.validation_split is not None

    def has_test_docs(self) -> bool:
        return self.config.test_split is not None

    def training_docs(self) -> Any:
        return self._docs(self.config.training_split, self.config.process_docs)

    def validation_docs(self) -> Any:
        return self._docs(self.config.validation_split, self.config.process_docs)

    def test_docs(self) -> Any:
        return self._docs(self.config.test_split, self.config.process_docs)

    def _docs(self, split: str | None, process: Callable[..., Any] | None) -> Any:
        rows = self.dataset[split]
        return rows if process is None else process(rows)

    def fewshot_docs(self) -> Any:
        own = self.config.fewshot_config or {}
        split = own.get("split") or self.config.fewshot_split
        if split is not None:
            return self._docs(split, own.get("process_docs") or self.config.process_docs)
        samples = own.get("samples")
        if samples is not None:
            return samples() if callable(samples) else samples
        return super().fewshot_docs()

    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> Any:
        maker = (
            self._stock.text_function
            if doc_to_text is None
            else self._stock.compile_text_field(doc_to_text, "doc_to_text")
        )
        return maker(doc)

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        own = self._stock.target_function
        maker = (
            own if doc_to_target is None else self._stock.compile_target_field(doc_to_target, "doc_to_target")
        )
        return maker(doc)

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any:
        return self._stock.choices(doc)

    def doc_to_prefix(self, doc: Any) -> Any:
        return self.config.gen_prefix or ""

    def should_decontaminate(self) -> bool:
        return bool(self.config.should_decontaminate)

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        """Return the requests of an ordinary task of this output type for the given context."""
        metadata = kwargs.get("metadata", (self.task_name, 0, 1))

        def instance(idx: int, *arguments: Any) -> Instance:
            kind = "loglikelihood" if self.OUTPUT_TYPE == "multiple_choice" else str(self.OUTPUT_TYPE)
            return Instance(kind, doc, arguments, idx, metadata)

        match self.OUTPUT_TYPE:
            case "multiple_choice":
                delimiter = "" if kwargs.get("apply_chat_template") else self.config.target_delimiter
                choices = self.doc_to_choice(doc) or ()
                return [instance(index, ctx, f"{delimiter}{choice}") for index, choice in enumerate(choices)]
            case "loglikelihood":
                return [instance(0, ctx, self.doc_to_target(doc))]
            case "loglikelihood_rolling":
                return [instance(0, self.doc_to_target(doc))]
            case _:
                return [instance(0, ctx, dict(self.config.generation_kwargs or {}))]

    def process_results(self, doc: Any, results: Any) -> Any:
        if self.config.process_results is not None:
            return self.config.process_results(doc, results)
        inputs, targets = self._stock.shape
        return self._scorer.judge(
            fields=doc,
            answers=results,
            target=self.doc_to_target(doc),
            choices=self._stock.choices(doc),
            multiple_inputs=inputs,
            multiple_targets=targets,
            question=self.doc_to_text(doc) if inputs else None,
        )

    def aggregation(self) -> Mapping[str, Callable[..., Any]]:
        return {
            name: AGGREGATIONS.get(use.aggregation) if isinstance(use.aggregation, str) else use.aggregation
            for name, use in self._scorer.metrics.items()
        }

    def higher_is_better(self) -> Mapping[str, bool]:
        return {
            name: use.higher_is_better
            for name, use in self._scorer.metrics.items()
            if use.higher_is_better is not None
        }


def build_class_spec(subject: Any, name: str, path: str) -> TaskSpec:
    """Build a task spec from the config of a class task, with the object's documents as splits.

    Raises:
        TaskError: The class has neither test nor validation documents, or its config is invalid.
    """
    config = {
        key: value
        for key, value in subject.config.items()
        if key in TASK_KEYS and key not in _CLASS_ONLY_KEYS
    }
    splits = DocumentSplits(subject)
    if not {"test", "validation"} & set(splits):
        raise TaskError("the class has neither test nor validation documents", where=path)
    for split in ("training", "validation", "test"):
        config[f"{split}_split"] = split if split in splits else None
    fewshot_config = {
        key: value for key, value in (config.get("fewshot_config") or {}).items() if key != "split"
    }
    config |= {
        "task": name,
        "dataset_path": subject.DATASET_PATH or name,
        "dataset_name": None if subject.DATASET_NAME is None else str(subject.DATASET_NAME),
        "fewshot_config": {**fewshot_config, "samples": subject.fewshot_docs, "process_docs": None},
        "metadata": {"version": subject.VERSION, **(subject.config.metadata or {})},
    }
    return task_from_config(TaskFile(Path(path), config))
