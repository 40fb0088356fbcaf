"""The content of task files after includes are merged: plain data with source locations.

The fields correspond to the YAML keys of lm_eval and lmms_eval. `config` holds the YAML mapping as written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.dialects import Dialect
from assay.core.output_types import OutputType
from assay.core.records.agents import AgentSpec
from assay.core.records.tools import ResponseFormat
from assay.core.records.variants import VariantSpec

__all__ = [
    "Dialect",
    "FewshotSpec",
    "FieldSpec",
    "FilterStep",
    "GroupMetric",
    "GroupSpec",
    "MetricSpec",
    "OutputType",
    "PipelineSpec",
    "TaskSpec",
]

FieldSpec = str | int | Sequence[Any] | Mapping[str, Any] | Callable[..., Any] | None
"""How a text, target or choice list is computed from a document: template, column, constant or function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """One filter of a pipeline: a registered name or a class, and its arguments."""

    function: str | Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A named sequence of filters applied to the same responses."""

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
    """Source and format of few-shot examples; None means the setting of the task applies."""

    sampler: str | Callable[..., Any] = "default"
    samples: Sequence[Mapping[str, Any]] | Callable[[], Sequence[Mapping[str, Any]]] | None = None
    split: str | None = None
    process_docs: Callable[..., Any] | None = None
    doc_to_text: FieldSpec = None
    doc_to_target: FieldSpec = None
    doc_to_choice: FieldSpec = None
    fewshot_delimiter: str | None = None
    target_delimiter: str | None = None
    gen_prefix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task: how to build requests and how to score the responses."""

    name: str
    path: str = ""
    """The YAML file, for error messages and hashes."""

    dialect: Dialect = Dialect.LM_EVAL
    alias: str | None = None
    tags: tuple[str, ...] = ()
    output_type: OutputType = OutputType.GENERATE_UNTIL

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
    description: FieldSpec = ""
    doc_to_text: FieldSpec = None
    doc_to_target: FieldSpec = None
    doc_to_choice: FieldSpec = None
    doc_to_image: FieldSpec = None
    doc_to_audio: FieldSpec = None
    doc_to_visual: FieldSpec = None
    doc_to_messages: FieldSpec = None
    tools: FieldSpec = None
    """The tools that the model may call: a list of definitions, a column, a file or a function."""

    tool_choice: str = "auto"
    parallel_tool_calls: bool | None = None
    tool_calls: str = "auto"
    """How the model gets the tools: one of `TOOL_CALL_MODES`."""

    doc_to_tool_prompt: FieldSpec = None
    """The whole prompt for a model that gets the tools as text, instead of `doc_to_text` with Assay's description of the tools."""

    response_format: ResponseFormat | None = None
    agent: AgentSpec | None = None
    """The solver, the tools, the environment and the user of an agent task."""

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
    doc_to_decontamination_query: FieldSpec = None

    lmms_eval_specific_kwargs: Mapping[str, Any] | None = None
    model_specific_generation_kwargs: Mapping[str, Any] | None = None
    model_specific_target_kwargs: Mapping[str, Any] | None = None
    process_results_use_image: bool = False
    cluster_key: str | None = None
    score_key: str = "score"
    full_docs: bool = False
    reasoning_tags: Any = None
    """Pairs of tags around reasoning; "none" for no tags; None: the setting of the run applies."""

    auto_strip_thinking: bool = False

    choice_column: str | None = None
    """The column with the texts of the choices; templates then have `choice_texts`, `choice_letters` and `choice_list`."""

    choice_letters: tuple[str, ...] = ()
    """The letters of `choice_column`; empty: A, B, C, …"""

    variants: tuple[VariantSpec, ...] = ()
    """Other ways to ask the documents, besides the unchanged one."""

    variant: VariantSpec | None = None
    """The variant that this task is; None: the task does not vary in this run."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The merged YAML as written, for exports and hashes."""

    places: Mapping[str, str] = field(default_factory=dict)
    """`file:line` of each top-level key, for error messages."""

    def __post_init__(self) -> None:
        """Accept the YAML names of the dialect and the output type."""
        object.__setattr__(self, "dialect", Dialect(self.dialect))
        object.__setattr__(self, "output_type", OutputType(self.output_type))

    @property
    def evaluated_split(self) -> str | None:
        """The evaluated split: `test_split`, else `validation_split`."""
        return self.test_split or self.validation_split

    @property
    def version(self) -> Any:
        """`metadata.version`, else `Yaml`, as lm-eval prints it."""
        return self.metadata.get("version", "Yaml")

    @property
    def target_is_answer(self) -> bool:
        """Whether a response equal to the target gets the full score; `metadata.target_is_answer` can say that it does not."""
        return self.metadata.get("target_is_answer") is not False

    def place(self, key: str = "") -> str:
        """Return `file:line, key` for an error message."""
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
    """None means all pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Tasks reported together."""

    name: str
    path: str = ""
    dialect: Dialect = Dialect.LM_EVAL
    alias: str | None = None
    members: tuple[str, ...] = ()
    """Names of the direct member tasks and groups, in order."""

    metrics: tuple[GroupMetric, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_family: bool = False
    """Whether the members are the prompt variants of one task, which has the name of the group."""

    def __post_init__(self) -> None:
        """Accept the YAML name of the dialect."""
        object.__setattr__(self, "dialect", Dialect(self.dialect))

    @property
    def version(self) -> Any:
        return self.metadata.get("version", "N/A")
