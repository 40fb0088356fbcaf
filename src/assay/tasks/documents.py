"""A task and its dataset: the documents, and the question, target and choices of each document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.core.errors import DatasetError, InvalidOption
from assay.core.records.documents import Document
from assay.core.records.requests import Settings
from assay.core.records.specs import TaskSpec
from assay.core.records.tools import CALL_SYNTAXES, Tools
from assay.tasks.data.allowed_folders import AllowedFolders
from assay.tasks.data.media_columns import decode_media_lazily, disable_missing_decoders
from assay.tasks.data.rows import Rows, Split, iterate_rows
from assay.tasks.data.splits import load_splits, select_model_args
from assay.tasks.prompts.choice_lists import add_choice_variables
from assay.tasks.prompts.field_compilers import compile_choices, compile_target, compile_text, copy_fields
from assay.tasks.prompts.multimodal import MultimodalRenderer
from assay.tasks.tools import ToolsFunction, compile_tools

if TYPE_CHECKING:
    from assay.tasks.prompts.named_prompts import NamedPrompt

__all__ = ["RenderingOptions", "TaskDocuments"]

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingOptions:
    """The options of a run that affect prompts."""

    num_fewshot: int | None = None
    chat: bool = False
    multiturn: bool = False
    system_instruction: str | None = None
    gen_kwargs: Mapping[str, Any] = field(default_factory=dict)
    fewshot_seed: int | None = 1234
    fewshot_order: str = ""
    """`reverse` or `shuffle`: the drawn few-shot examples in another order."""

    limit: float | int | None = None
    offset: int = 0
    samples: Sequence[int] | None = None
    draws_for_all: bool = False
    """Whether documents that `samples` leaves out draw few-shot examples, so that prompts are those of a run of all documents."""

    model_name: str = ""
    """Selects an entry of `lmms_eval_specific_kwargs`."""

    chat_messages: bool = True
    """Whether the model accepts chat messages. `doc_to_messages` needs it."""

    agentic_trace_mode: str = "basic"
    """`full`: the answer of an agent contains every step."""

    process_with_media: bool = False
    """Whether `process_results` gets media columns even if the task does not request them."""

    data_root: str | None = None
    mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Other ids of datasets, tried in order if a dataset cannot be loaded under its own id."""

    allow_data_outside: bool = False
    """Whether data files may be outside the folder of the task, `data_root` and the working directory."""

    trust_remote_code: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    model_args: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of the model. lm-eval passes them to functions that build datasets, which load the tokenizer by them."""

    supports_tools: bool = False
    """Whether the model gets tools in its own format."""

    tool_calls: str = "auto"
    """How the run passes tools to the model: one of `TOOL_CALL_MODES`; `auto`: as the task says."""


class TaskDocuments:
    """A task and its dataset: the documents and their fields."""

    mirror: str = ""
    """The id under which the dataset was loaded, if not its own."""

    def __init__(
        self,
        spec: TaskSpec,
        rendering: RenderingOptions | None = None,
        splits: Mapping[str, Split] | None = None,
    ) -> None:
        self.rendering = rendering or RenderingOptions()
        model_args = select_model_args(spec, self.rendering.model_args)
        self.spec = replace(spec, metadata={**spec.metadata, **model_args, **self.rendering.metadata})
        self._splits_override = splits
        self._drawn: dict[tuple[str, int], Rows] = {}
        """Processed rows of local files for which task code draws at random: once, as with the cache of `datasets`."""

        if spec.agent is not None:  # the description is the system message, also of models that get one text
            self.rendering = replace(self.rendering, chat=True)
        self._has_tools = spec.tools is not None
        if self._has_tools:
            self._apply_tool_mode()

    def _apply_tool_mode(self) -> None:
        """Use the chat template for native tools, and the task's own prompt for tools as text."""
        if not self.tool_syntax:
            self.rendering = replace(self.rendering, chat=True)
        elif self.spec.doc_to_tool_prompt is not None:
            self.spec = replace(self.spec, doc_to_text=self.spec.doc_to_tool_prompt, tools=None)

    @cached_property
    def tool_syntax(self) -> str:
        """The syntax in which the model writes calls as text; empty if it gets the tools in its own format."""
        mode = self.rendering.tool_calls
        mode = self.spec.tool_calls if mode == "auto" else mode
        if mode == "auto":
            mode = "native" if self.rendering.supports_tools else CALL_SYNTAXES[0]
        return "" if mode == "native" else mode

    @cached_property
    def _tools_function(self) -> ToolsFunction | None:
        source = self.spec.tools
        if isinstance(source, str) and source not in self.columns and self._allowed_folders is not None:
            self._allowed_folders.check_data(source, where=self.spec.place("tools"))
        return compile_tools(self.spec, self.columns)

    def find_tools(self, fields: Fields) -> Tools | None:
        """Return the tools of a document, or None if it has none."""
        if self._tools_function is None:
            return None
        tools = self._tools_function(fields)
        return tools if tools is None or not self.tool_syntax else replace(tools, syntax=self.tool_syntax)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def num_fewshot(self) -> int:
        """The number of few-shot examples per question. A task that sets 0 keeps 0."""
        own, asked = self.spec.num_fewshot, self.rendering.num_fewshot
        return own or 0 if asked is None or own == 0 else asked

    @cached_property
    def settings(self) -> Settings:
        """The generation settings: those of the task, updated with those for the model and those of the run."""
        values = dict(self.spec.generation_kwargs)
        by_model = self.spec.model_specific_generation_kwargs or {}
        values.update(by_model.get(self.rendering.model_name, by_model.get("default", {})))
        values.update(self.rendering.gen_kwargs)
        return Settings(MappingProxyType(values))

    # --- documents ---------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The splits of the dataset, loaded on first access unless given."""
        if self._splits_override is not None:
            return self._splits_override
        try:
            return self._load_splits(self.spec)
        except DatasetError:
            for other in self.rendering.mirrors.get(str(self.spec.dataset_path), ()):
                with suppress(DatasetError):
                    found = self._load_splits(replace(self.spec, dataset_path=other))
                    self.mirror = other
                    return found
            raise

    def _load_splits(self, spec: TaskSpec) -> Mapping[str, Split]:
        return load_splits(
            spec,
            data_root=self.rendering.data_root,
            trust_remote_code=self.rendering.trust_remote_code,
            allow_data_outside=self.rendering.allow_data_outside,
        )

    @cached_property
    def rows(self) -> Split:
        """The evaluated split after `process_docs`."""
        rows = self.load_split(self.spec.evaluated_split, self.spec.process_docs, "test_split")
        if not len(rows):
            raise DatasetError(
                f"the split `{self.spec.evaluated_split}` has no documents",
                where=self.spec.place("test_split"),
            )
        return rows

    @cached_property
    def columns(self) -> frozenset[str]:
        """The column names of the evaluated split. A field that equals a column name is that column."""
        return frozenset(self.rows.features)

    @cached_property
    def media_columns(self) -> frozenset[str]:
        """The columns of pictures and sounds that the dialect hides from `doc_to_text` and `process_results`."""
        if not self.spec.dialect.hides_media_columns:
            return frozenset()
        features = self.rows.features
        return frozenset(name for name in features if _is_media(features[name]))

    def text_fields(self, fields: Fields) -> Fields:
        """Return the fields of a document that `doc_to_text` gets."""
        if not self.media_columns or self.spec.process_results_use_image:
            return fields
        return {key: fields[key] for key in fields if key not in self.media_columns}

    def scoring_fields(self, fields: Fields) -> Fields:
        """Return the fields of a document that `process_results` gets."""
        return fields if self.rendering.process_with_media else self.text_fields(fields)

    def load_split(self, name: str | None, process: Any, key: str) -> Split:
        """Load a split and apply `process_docs`. `key` is the YAML key for error messages."""
        if name is None or name not in self.splits:
            known = ", ".join(self.splits)
            raise DatasetError(
                f"the dataset has no split `{name}`", where=self.spec.place(key), hint=f"it has: {known}"
            )
        rows = self.splits[name]
        if process is None:
            return decode_media_lazily(rows)  # type: ignore[no-any-return]
        if (drawn := self._drawn.get((name, id(process)))) is not None:
            return drawn.deep_copy()
        given, undecoded = disable_missing_decoders(rows.deep_copy() if isinstance(rows, Rows) else rows)
        processed = decode_media_lazily(process(given), undecoded)
        is_cached = isinstance(processed, Rows) and self.spec.custom_dataset is None
        if is_cached and getattr(process, "may_draw_at_random", False):
            self._drawn[name, id(process)] = processed.deep_copy()
        return processed  # type: ignore[no-any-return]

    @cached_property
    def indices(self) -> Sequence[int]:
        """The positions of the selected documents, ascending."""
        total, wanted, limit = len(self.rows), self.rendering.samples, self.rendering.limit
        if wanted is not None:
            outside = [index for index in wanted if not 0 <= index < total]
            if outside:
                raise InvalidOption(
                    f"`{self.name}` has {total} documents; index {outside[0]} does not exist",
                    where="--samples",
                )
            return sorted(set(wanted))
        first = min(total, self.rendering.offset)
        if limit is None:
            return range(first, total)
        return range(first, min(total, first + (math.ceil(total * limit) if limit < 1 else int(limit))))

    def __len__(self) -> int:
        return len(self.indices)

    def documents(self) -> Iterator[Document]:
        """Iterate over the selected documents, in order."""
        indices = self.indices
        if isinstance(indices, range):
            rows = iterate_rows(self.rows, indices.start, indices.stop)
            for index, row in enumerate(rows, indices.start):
                yield Document(task=self.name, index=index, fields=row)
        else:
            for index in indices:
                yield Document(task=self.name, index=index, fields=self.rows[index])

    # --- fields of a document ----------------------------------------------------------------------

    @cached_property
    def prompt(self) -> NamedPrompt | None:
        """The prompt of `use_prompt`, if set."""
        if self.spec.use_prompt is None:
            return None
        from assay.tasks.prompts.named_prompts import load_named_prompt

        return load_named_prompt(self.spec)

    @cached_property
    def text_function(self) -> Any:
        """The compiled `doc_to_text`, or the text of `use_prompt`."""
        return (
            self.prompt.text if self.prompt else self.compile_text_field(self.spec.doc_to_text, "doc_to_text")
        )

    @cached_property
    def target_function(self) -> Any:
        """The compiled `doc_to_target`, or the target of `use_prompt`."""
        return (
            self.prompt.target
            if self.prompt
            else self.compile_target_field(self.spec.doc_to_target, "doc_to_target")
        )

    @cached_property
    def choices_function(self) -> Any:
        """The compiled `doc_to_choice`, or None."""
        if self.prompt and self.prompt.choices is not None and self.spec.doc_to_choice is not None:
            return self.prompt.choices
        if self.spec.doc_to_choice is None:
            return None
        return self._with_choice_variables(
            self.spec.doc_to_choice,
            compile_choices(self.spec.doc_to_choice, self.columns, where=self.spec.place("doc_to_choice")),
        )

    def _with_choice_variables(self, source: Any, render: Any) -> Any:
        """Return a template's function with the variables of `choice_column`, if the task has one."""
        column = self.spec.choice_column
        if column is None or not isinstance(source, str) or source in self.columns:
            return render
        return add_choice_variables(
            render, column, self.spec.choice_letters, where=self.spec.place("choice_column")
        )

    def compile_text_field(self, source: Any, key: str) -> Any:
        """Compile a text field of the task or of its few-shot examples. `key` is its YAML key."""
        if callable(source) and self.multimodal.keywords is not None:
            return lambda fields: source(fields, self.multimodal.keywords)
        has_choices = self.spec.doc_to_choice is not None
        render = compile_text(
            self._normalize_template("" if source is None else source),
            self.columns,
            has_choices=has_choices,
            where=self.spec.place(key),
        )
        return self._with_choice_variables(source, render)

    def _normalize_template(self, source: Any) -> Any:
        """Return a template as the dialect reads it."""
        drops = (
            self.spec.dialect.drops_final_newline and isinstance(source, str) and source not in self.columns
        )
        return source[:-1] if drops and source.endswith("\n") else source

    def compile_target_field(self, source: Any, key: str) -> Any:
        """Compile a target field. `key` is its YAML key."""
        by_model = self.spec.model_specific_target_kwargs
        if callable(source) and by_model is not None:
            keywords = by_model.get(self.rendering.model_name, by_model.get("default"))
            return source if keywords is None else lambda fields: source(fields, keywords)
        has_choices = self.spec.doc_to_choice is not None
        render = compile_target(
            self._normalize_template("" if source is None else source),
            self.columns,
            has_choices=has_choices,
            where=self.spec.place(key),
        )
        return self._with_choice_variables(source, render)

    @cached_property
    def multimodal(self) -> MultimodalRenderer:
        """The renderer of `doc_to_visual` and `doc_to_messages`."""
        renderer = MultimodalRenderer.from_spec(self.spec, self.rendering.model_name, self.check_media)
        agentic = self.spec.output_type.is_agentic  # its rounds use `doc_to_text` only
        return replace(renderer, doc_to_messages=None) if agentic else renderer

    def check_media(self, values: Sequence[Any], where: str) -> None:
        """Raise an error if values of columns name files that the task may not read."""
        if self._allowed_folders is not None:
            for value in values:
                self._allowed_folders.check_media(value, where=where)

    @cached_property
    def _allowed_folders(self) -> AllowedFolders | None:
        if self.rendering.allow_data_outside:
            return None
        return AllowedFolders.for_task(self.spec, self.rendering.data_root)

    def overlap_query(self, fields: Fields) -> str:
        """Return the text to search in training data: `doc_to_decontamination_query`, or the question."""
        source = self.spec.doc_to_decontamination_query
        if source is None:
            return str(self.question(fields))
        if isinstance(source, str) and source in self.columns:
            return str(fields[source])
        return str(
            source(fields)
            if callable(source)
            else self.compile_text_field(source, "doc_to_decontamination_query")(fields)
        )

    def question(self, fields: Fields) -> Any:
        """Return the result of `doc_to_text`."""
        return self.text_function(fields)

    def target(self, fields: Fields) -> Any:
        """Return the result of `doc_to_target`: a text, an index or a list."""
        return self.target_function(fields)

    def choices(self, fields: Fields) -> Sequence[str] | None:
        """Return the choices of a document, or None if the task has none."""
        return None if self.choices_function is None else self.choices_function(fields)

    @cached_property
    def shape(self) -> tuple[int, bool]:
        """(number of inputs if the choices are the inputs, otherwise 0; whether targets are lists). Read from the
        first document. As in lm-eval, targets are not lists if the first one is an empty list."""
        fields = copy_fields(self.rows[0])
        question, target, choices = self.question(fields), self.target(fields), self.choices(fields)
        inputs = len(choices) if choices is not None and isinstance(question, int) else 0
        is_list = isinstance(target, list) and len(target) > 0
        return inputs, is_list and not self._has_tools  # a list of calls is one target


def _is_media(feature: Any) -> bool:
    """Return whether a `datasets` column contains pictures, lists of pictures, or sounds."""
    kind = type(feature).__name__
    inner = type(getattr(feature, "feature", None)).__name__
    return kind in ("Image", "Audio") or (kind in ("List", "LargeList", "Sequence") and inner == "Image")
