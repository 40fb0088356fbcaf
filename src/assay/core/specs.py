"""What a task file says, after includes: plain data, with the place it came from.

The YAML keys of the two harnesses map one to one onto the fields here; `config` keeps the mapping as written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "Dialect",
    "FewshotSpec",
    "FilterStep",
    "GroupMetric",
    "GroupSpec",
    "Maker",
    "MetricSpec",
    "OutputType",
    "PipelineSpec",
    "TaskSpec",
]

OutputType = Literal[
    "generate_until",
    "multiple_choice",
    "loglikelihood",
    "loglikelihood_rolling",
    "generate_until_multi_round",
    "generate_until_agentic",
    "generate_visual_cot",
]

Dialect = Literal["lm_eval", "lmms_eval"]
"""Whose habits a task file follows where the two harnesses read the same keys differently."""

Maker = str | int | Sequence[Any] | Mapping[str, Any] | Callable[..., Any] | None
"""How a document becomes a text, target or choice list: a template, a column, a constant or a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """One filter of a pipeline: a registered name or a class, with its arguments."""

    function: str | Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """Filters applied one after the other to the same responses."""

    name: str
    steps: tuple[FilterStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One entry of `metric_list`."""

    metric: str | Callable[..., Any]
    aggregation: str | Callable[..., Any] | None = None
    higher_is_better: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    @property
    def name(self) -> str:
        """The name the score is reported under."""
        return self.metric if isinstance(self.metric, str) else getattr(self.metric, "__name__", "metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class FewshotSpec:
    """Where the examples come from and how they are written; None means as the task does."""

    sampler: str | Callable[..., Any] = "default"
    samples: Sequence[Mapping[str, Any]] | Callable[[], Sequence[Mapping[str, Any]]] | None = None
    split: str | None = None
    process_docs: Callable[..., Any] | None = None
    doc_to_text: Maker = None
    doc_to_target: Maker = None
    doc_to_choice: Maker = None
    fewshot_delimiter: str | None = None
    target_delimiter: str | None = None
    gen_prefix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task: what to ask and how to judge it."""

    name: str
    path: str = ""
    """The YAML file, for error messages and hashes."""

    dialect: Dialect = "lm_eval"
    alias: str | None = None
    tags: tuple[str, ...] = ()
    output_type: OutputType = "generate_until"

    dataset_path: str | None = None
    dataset_name: str | None = None
    dataset_kwargs: Mapping[str, Any] = field(default_factory=dict)
    custom_dataset: Callable[..., Any] | None = None
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    fewshot_split: str | None = None
    process_docs: Callable[..., Any] | None = None

    use_prompt: str | None = None
    description: Maker = ""
    doc_to_text: Maker = None
    doc_to_target: Maker = None
    doc_to_choice: Maker = None
    doc_to_image: Maker = None
    doc_to_audio: Maker = None
    doc_to_visual: Maker = None
    doc_to_messages: Maker = None
    fewshot_delimiter: str = "\n\n"
    target_delimiter: str = " "
    gen_prefix: str | None = None
    num_fewshot: int | None = None
    fewshot: FewshotSpec = field(default_factory=FewshotSpec)

    generation_kwargs: Mapping[str, Any] = field(default_factory=dict)
    repeats: int = 1
    batch_size: int | None = None
    pipelines: tuple[PipelineSpec, ...] = ()
    metrics: tuple[MetricSpec, ...] = ()
    process_results: Callable[..., Any] | None = None
    unsafe_code: bool = False
    should_decontaminate: bool = False
    doc_to_decontamination_query: Maker = None

    lmms_eval_specific_kwargs: Mapping[str, Any] | None = None
    model_specific_generation_kwargs: Mapping[str, Any] | None = None
    model_specific_target_kwargs: Mapping[str, Any] | None = None
    process_results_use_image: bool = False
    cluster_key: str | None = None
    score_key: str = "score"
    full_docs: bool = False
    reasoning_tags: Any = None
    """Pairs of tags around what a model thinks before it answers; "none" for none; None: as the run says."""

    auto_strip_thinking: bool = False

    metadata: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The merged YAML as written, for exports and hashes."""

    places: Mapping[str, str] = field(default_factory=dict)
    """`file:line` of each top-level key, for error messages."""

    @property
    def evaluated_split(self) -> str | None:
        """The split whose documents are asked: `test_split`, else `validation_split`."""
        return self.test_split or self.validation_split

    @property
    def version(self) -> Any:
        """`metadata.version`; lm-eval prints `Yaml` where there is none."""
        return self.metadata.get("version", "Yaml")

    def place(self, key: str = "") -> str:
        """`file:line, key` for an error message."""
        if key in self.places:
            return f"{self.places[key]}, {key}"
        return f"{self.path}{', ' if self.path and key else ''}{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetric:
    """One entry of `aggregate_metric_list`."""

    metric: str
    aggregation: str | Callable[..., Any] = "mean"
    weight_by_size: bool = True
    filter_list: tuple[str, ...] | None = None
    """None means every pipeline found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Tasks reported together."""

    name: str
    path: str = ""
    dialect: Dialect = "lm_eval"
    alias: str | None = None
    members: tuple[str, ...] = ()
    """Names of the tasks and groups directly inside, in order."""

    metrics: tuple[GroupMetric, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> Any:
        return self.metadata.get("version", "N/A")
