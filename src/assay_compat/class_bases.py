"""What tasks written as Python classes derive from, in the place of `lm_eval.api.task`.

The methods are lm_eval's, because such classes override and call them. Nothing is downloaded before the data is asked
for. How prompts are made and requests are sent is not decided here: see `class_tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from assay.core.errors import BadTask
from assay.core.specs import TaskSpec
from assay.scoring.scorer import Scorer
from assay.stats.aggregations import AGGREGATIONS
from assay.tasks.data import load_splits
from assay.tasks.load import TASK_KEYS, task_from_config
from assay.tasks.task import Task as StockTask
from assay.tasks.yaml_reader import TaskFile
from assay_compat.class_config import TaskConfig
from assay_compat.class_documents import DocumentSplits
from assay_compat.foreign.lm_eval.api.instance import Instance

__all__ = ["ConfigurableTask", "Task", "spec_of"]

_NOT_STOCK = frozenset(("class", "custom_dataset", "fewshot_split", "include", "process_docs"))


class Task:
    """A task as lm_eval's class interface has it."""

    VERSION: Any = None
    DATASET_PATH: str | None = None
    DATASET_NAME: str | None = None
    OUTPUT_TYPE: str | None = None
    CONFIG: ClassVar[Any] = None
    MULTIMODAL: bool = False
    UNSAFE_CODE: bool = False

    asked_by: Any = None
    """The Assay task that asks this one's questions."""

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
        """The dataset, downloaded when first asked for."""
        if "_dataset" not in self.__dict__:
            self.download(self.config.dataset_kwargs)
        return self.__dict__["_dataset"]

    @dataset.setter
    def dataset(self, value: Any) -> None:
        self.__dict__["_dataset"] = value

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> None:
        """Load the dataset; a class may do it its own way and set `self.dataset`."""
        rendering = self.asked_by.rendering
        spec = TaskSpec(
            name=self.task_name,
            path=self.asked_by.path,
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

    # --- questions ---------------------------------------------------------------------------------

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
        """Description, examples and question; with the examples Assay drew for this document."""
        return self.asked_by.context(doc)

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("construct_requests")

    # --- judgement ---------------------------------------------------------------------------------

    def process_results(self, doc: Any, results: Any) -> Any:
        raise NotImplementedError("process_results")

    def aggregation(self) -> Mapping[str, Callable[..., Any]]:
        raise NotImplementedError("aggregation")

    def higher_is_better(self) -> Mapping[str, bool]:
        raise NotImplementedError("higher_is_better")

    def get_config(self, key: str) -> Any:
        return self.config[key]

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Set a key of the config, or update the mapping under it."""
        self.config[key] = {**(self.config[key] or {}), **value} if update else value

    @classmethod
    def count_bytes(cls, doc: str) -> int:
        return len(doc.encode("utf-8"))

    @classmethod
    def count_words(cls, doc: str) -> int:
        return len(doc.split())


class ConfigurableTask(Task):
    """A task that does what its config says wherever the class does not override it."""

    VERSION = "Yaml"

    @cached_property
    def _stock(self) -> StockTask:
        """The same config as an ordinary task, on this object's documents."""
        spec = spec_of(self, self.asked_by.name, self.asked_by.path)
        return StockTask(spec, self.asked_by.rendering, DocumentSplits(self))

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer.of(self._stock.spec)

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
            self._stock.make_text
            if doc_to_text is None
            else self._stock.text_with(doc_to_text, "doc_to_text")
        )
        return maker(doc)

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        own = self._stock.make_target
        maker = own if doc_to_target is None else self._stock.target_with(doc_to_target, "doc_to_target")
        return maker(doc)

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any:
        return self._stock.choices(doc)

    def doc_to_prefix(self, doc: Any) -> Any:
        return self.config.gen_prefix or ""

    def should_decontaminate(self) -> bool:
        return bool(self.config.should_decontaminate)

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        """The requests an ordinary task of this output type makes, of the given context."""
        metadata = kwargs.get("metadata", (self.task_name, 0, 1))

        def instance(idx: int, *arguments: Any) -> Instance:
            kind = "loglikelihood" if self.OUTPUT_TYPE == "multiple_choice" else str(self.OUTPUT_TYPE)
            return Instance(kind, doc, arguments, idx, metadata)

        match self.OUTPUT_TYPE:
            case "multiple_choice":
                delimiter = "" if kwargs.get("apply_chat_template") else self.config.target_delimiter
                choices = self.doc_to_choice(doc) or ()
                return [instance(at, ctx, f"{delimiter}{choice}") for at, choice in enumerate(choices)]
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


def spec_of(subject: Any, name: str, path: str) -> TaskSpec:
    """A class task's config as a task, with the object's documents under the names of their methods.

    Raises:
        BadTask: The class has neither test nor validation documents, or its config is wrong.
    """
    config = {
        key: value for key, value in subject.config.items() if key in TASK_KEYS and key not in _NOT_STOCK
    }
    splits = DocumentSplits(subject)
    if not {"test", "validation"} & set(splits):
        raise BadTask("the class has neither test nor validation documents", where=path)
    for split in ("training", "validation", "test"):
        config[f"{split}_split"] = split if split in splits else None
    shots = {key: value for key, value in (config.get("fewshot_config") or {}).items() if key != "split"}
    config |= {
        "task": name,
        "dataset_path": subject.DATASET_PATH or name,
        "dataset_name": None if subject.DATASET_NAME is None else str(subject.DATASET_NAME),
        "fewshot_config": {**shots, "samples": subject.fewshot_docs, "process_docs": None},
        "metadata": {"version": subject.VERSION, **(subject.config.metadata or {})},
    }
    return task_from_config(TaskFile(Path(path), config))
