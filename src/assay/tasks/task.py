"""A task ready to be asked: its documents, their requests, their targets.

Binds a `TaskSpec` to its data. Rendering is one pass in document order, because few-shot sampling is; a pass
can be repeated and gives the same requests every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from assay.core.documents import Document
from assay.core.errors import BadData, BadOption, BadTask
from assay.core.messages import Message, Part, Prompt, Text
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.specs import TaskSpec
from assay.tasks.data import Split, load_splits
from assay.tasks.fewshot import Sampler, Turn, join, question_turns, remembered, to_prompt
from assay.tasks.makers import choices_maker, field_maker, loan, media_maker, target_maker, text_maker
from assay.tasks.media import audio_part, image_part
from assay.tasks.multimodal import Visuals

__all__ = ["Pass", "Rendering", "Task"]

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How prompts are to be made in one run: the options of a run that reach into prompts."""

    num_fewshot: int | None = None
    chat: bool = False
    multiturn: bool = False
    system_instruction: str | None = None
    gen_kwargs: Mapping[str, Any] = field(default_factory=dict)
    fewshot_seed: int | None = 1234
    limit: float | int | None = None
    samples: Sequence[int] | None = None
    model_name: str = ""
    """Chooses among `lmms_eval_specific_kwargs`."""

    chat_messages: bool = True
    """Whether the model takes chat messages: `doc_to_messages` is used only then."""

    data_root: str | None = None
    trust_remote_code: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Pass:
    """One pass over a task, in document order: few-shot sampling remembers where it is."""

    def __init__(self, task: Task, shots: Callable[[Fields], list[Turn]]) -> None:
        self._task = task
        self._shots = shots

    def requests(self, document: Document) -> tuple[Request, ...]:
        """What is asked about a document."""
        fields = loan(document.fields)
        return tuple(self._task._requests(document, fields, self._shots(fields)))

    def skip(self, document: Document) -> None:
        """Pass over a document that needs nothing more, drawing its examples all the same."""
        self._shots(document.fields)


class Task:
    """One task of a run."""

    def __init__(
        self, spec: TaskSpec, rendering: Rendering | None = None, splits: Mapping[str, Split] | None = None
    ) -> None:
        self.rendering = rendering or Rendering()
        self.spec = replace(spec, metadata={**spec.metadata, **self.rendering.metadata})
        self._given_splits = splits

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def num_fewshot(self) -> int:
        """How many examples precede each question. A task that says 0 keeps 0."""
        own, asked = self.spec.num_fewshot, self.rendering.num_fewshot
        return own or 0 if asked is None or own == 0 else asked

    @cached_property
    def settings(self) -> Settings:
        """How answers are generated: the task's settings, then the model's, then the user's."""
        values = dict(self.spec.generation_kwargs)
        by_model = self.spec.model_specific_generation_kwargs or {}
        values.update(by_model.get(self.rendering.model_name, by_model.get("default", {})))
        values.update(self.rendering.gen_kwargs)
        return Settings(MappingProxyType(values))

    # --- documents ---------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> Mapping[str, Split]:
        """The dataset, loaded once; or the one that was handed in."""
        if self._given_splits is not None:
            return self._given_splits
        return load_splits(
            self.spec, data_root=self.rendering.data_root, trust_remote_code=self.rendering.trust_remote_code
        )

    @cached_property
    def rows(self) -> Split:
        """The evaluated split after `process_docs`."""
        rows = self._split(self.spec.evaluated_split, self.spec.process_docs, "test_split")
        if not len(rows):
            raise BadData(
                f"the split `{self.spec.evaluated_split}` has no documents", where=self.spec.place("test_split")
            )
        return rows

    @cached_property
    def columns(self) -> frozenset[str]:
        """Column names of the evaluated split: what makes a string a column and not a template."""
        return frozenset(self.rows.features)

    def _split(self, name: str | None, process: Any, key: str) -> Split:
        if name is None or name not in self.splits:
            known = ", ".join(self.splits)
            raise BadData(f"the dataset has no split `{name}`", where=self.spec.place(key), hint=f"it has: {known}")
        rows = self.splits[name]
        return rows if process is None else process(rows)

    @cached_property
    def indices(self) -> Sequence[int]:
        """Positions of the documents that are asked, ascending."""
        total, wanted, limit = len(self.rows), self.rendering.samples, self.rendering.limit
        if wanted is not None:
            outside = [index for index in wanted if not 0 <= index < total]
            if outside:
                raise BadOption(f"`{self.name}` has {total} documents, so there is no {outside[0]}", where="--samples")
            return sorted(set(wanted))
        if limit is None:
            return range(total)
        return range(min(total, math.ceil(total * limit) if limit < 1 else int(limit)))

    def __len__(self) -> int:
        return len(self.indices)

    def documents(self) -> Iterator[Document]:
        """The documents that are asked, in order."""
        indices = self.indices
        if isinstance(indices, range):
            for index, row in enumerate(self.rows):
                if index >= len(indices):
                    return
                yield Document(task=self.name, index=index, fields=row)
        else:
            for index in indices:
                yield Document(task=self.name, index=index, fields=self.rows[index])

    # --- what a document becomes -------------------------------------------------------------------

    @cached_property
    def _make_text(self) -> Any:
        return self._text(self.spec.doc_to_text, "doc_to_text")

    @cached_property
    def _make_target(self) -> Any:
        return self._target(self.spec.doc_to_target, "doc_to_target")

    @cached_property
    def _make_choices(self) -> Any:
        if self.spec.doc_to_choice is None:
            return None
        return choices_maker(self.spec.doc_to_choice, self.columns, where=self.spec.place("doc_to_choice"))

    def _text(self, maker: Any, key: str) -> Any:
        if callable(maker) and self.visuals.keywords is not None:
            return lambda fields: maker(fields, self.visuals.keywords)
        has_choices = self.spec.doc_to_choice is not None
        return text_maker("" if maker is None else maker, self.columns, has_choices=has_choices, where=self.spec.place(key))

    def _target(self, maker: Any, key: str) -> Any:
        by_model = self.spec.model_specific_target_kwargs
        if callable(maker) and by_model is not None:
            keywords = by_model.get(self.rendering.model_name, by_model.get("default"))
            return maker if keywords is None else lambda fields: maker(fields, keywords)
        has_choices = self.spec.doc_to_choice is not None
        return target_maker("" if maker is None else maker, self.columns, has_choices=has_choices, where=self.spec.place(key))

    @cached_property
    def visuals(self) -> Visuals:
        """The multimodal side: `doc_to_visual`, `doc_to_messages` and their keyword arguments."""
        return Visuals.of(self.spec, self.rendering.model_name)

    def question(self, fields: Fields) -> Any:
        """What `doc_to_text` makes of a document."""
        return self._make_text(fields)

    def target(self, fields: Fields) -> Any:
        """What `doc_to_target` makes of a document: a text, an index, a list."""
        return self._make_target(fields)

    def choices(self, fields: Fields) -> Sequence[str] | None:
        """The choices of a document, or None where the task has none."""
        return None if self._make_choices is None else self._make_choices(fields)

    @cached_property
    def shape(self) -> tuple[int, bool]:
        """(number of inputs that stand for choices, or 0; whether targets are lists), from the first document."""
        fields = loan(self.rows[0])
        question, target, choices = self.question(fields), self.target(fields), self.choices(fields)
        inputs = len(choices) if choices is not None and isinstance(question, int) else 0
        return inputs, isinstance(target, list)

    # --- requests ----------------------------------------------------------------------------------

    def begin(self) -> Pass:
        """A pass over the documents. Every pass gives the same requests."""
        return Pass(self, self._shots())

    def render(self) -> Iterator[tuple[Document, tuple[Request, ...]]]:
        """Every document with its requests, in order."""
        rendering = self.begin()
        for document in self.documents():
            yield document, rendering.requests(document)

    def _shots(self) -> Any:
        """A function from a document to the turns of its examples; a fresh sampler for each pass."""
        if self.num_fewshot == 0 or self.spec.output_type == "loglikelihood_rolling":
            return lambda fields: []
        spec, own = self.spec, self.spec.fewshot
        if not isinstance(own.sampler, str):
            raise BadTask("few-shot samplers must be named", where=spec.place("fewshot_config"), hint="`sampler: first_n`")
        sampler = Sampler(own.sampler, self.pool, self.rendering.fewshot_seed, where=spec.place("fewshot_config"))
        write = remembered(self._write_shot)
        own_split = (own.split or spec.fewshot_split) == spec.test_split
        if sampler.fixed and not own_split:
            turns = write(sampler.pick(self.num_fewshot))
            return lambda fields: turns
        return lambda fields: write(sampler.pick(self.num_fewshot, fields if own_split else None))

    @cached_property
    def pool(self) -> Sequence[Fields]:
        """The documents examples are drawn from."""
        spec, own = self.spec, self.spec.fewshot
        split = own.split or spec.fewshot_split
        if split is not None:
            return list(self._split(split, own.process_docs or spec.process_docs, "fewshot_split"))
        if own.samples is not None:
            return list(own.samples() if callable(own.samples) else own.samples)
        for name in (spec.training_split, spec.validation_split, spec.test_split):
            if name is not None:
                return list(self._split(name, spec.process_docs, "training_split"))
        return []

    @cached_property
    def _shot_makers(self) -> tuple[Any, Any, Any, Any]:
        own, place = self.spec.fewshot, self.spec.place("fewshot_config")
        text = self._make_text if own.doc_to_text is None else self._text(own.doc_to_text, "fewshot_config")
        target = self._make_target if own.doc_to_target is None else self._target(own.doc_to_target, "fewshot_config")
        choices = self._make_choices
        if own.doc_to_choice is not None:
            choices = choices_maker(own.doc_to_choice, self.columns, where=place)
        prefix = field_maker(self.spec.gen_prefix if own.gen_prefix is None else own.gen_prefix, where=place)
        return text, target, choices, prefix

    def _write_shot(self, at: int) -> list[Turn]:
        fields = loan(self.pool[at])
        text, target, make_choices, prefix = self._shot_makers
        own, spec = self.spec.fewshot, self.spec
        choices = make_choices(fields) if make_choices else None
        question = text(fields)
        if self.shape[0] and choices is not None:
            question, choices = choices[question], None
        return question_turns(
            question,
            target(fields),
            choices=choices,
            prefix=prefix(fields),
            target_delimiter=spec.target_delimiter if own.target_delimiter is None else own.target_delimiter,
            after=spec.fewshot_delimiter if own.fewshot_delimiter is None else own.fewshot_delimiter,
            where=spec.place("fewshot_config" if own.doc_to_target is not None else "doc_to_target"),
        )

    @cached_property
    def _make_description(self) -> Any:
        return field_maker(self.spec.description, where=self.spec.place("description"))

    @cached_property
    def _make_prefix(self) -> Any:
        prefix = self.spec.gen_prefix
        if prefix is None:
            return lambda fields: None
        return text_maker(prefix, self.columns, has_choices=False, where=self.spec.place("gen_prefix"))

    def _requests(self, document: Document, fields: Fields, shots: list[Turn]) -> Iterator[Request]:
        spec = self.spec
        task, index = self.name, document.index
        match spec.output_type:
            case "loglikelihood_rolling":
                prompt = Prompt.of_text(self._as_text(self.target(fields), "doc_to_target"))
                yield RollingLikelihood(task=task, document=index, prompt=prompt)
            case "loglikelihood":
                prompt = self._prompts(fields, shots)[0]
                continuation = self._as_text(self.target(fields), "doc_to_target")
                yield Likelihood(task=task, document=index, prompt=prompt, continuation=continuation)
            case "multiple_choice":
                for at, (prompt, continuation) in enumerate(self._pairs(fields, shots)):
                    yield Likelihood(task=task, document=index, index=at, prompt=prompt, continuation=continuation)
            case _:
                prompt = self._prompts(fields, shots)[0]
                for repeat in range(spec.repeats):
                    yield Generate(task=task, document=index, repeat=repeat, prompt=prompt, settings=self.settings)

    def _pairs(self, fields: Fields, shots: list[Turn]) -> Iterator[tuple[Prompt, str]]:
        """(context, continuation) for every choice, then the unconditional ones for mutual information."""
        choices = self.choices(fields) or ()
        delimiter = self.spec.target_delimiter
        if self.rendering.chat:
            prefix = self.spec.gen_prefix
            delimiter = delimiter if prefix and not prefix[-1].isspace() else ""
        prompts = self._prompts(fields, shots)
        if self.shape[0]:
            continuation = f"{delimiter}{self.target(fields)}"
            for prompt in prompts:
                yield prompt, continuation
        else:
            for choice in choices:
                yield prompts[0], f"{delimiter}{choice}"
        if any(metric.metric == "acc_mutual_info" for metric in self.spec.metrics):
            for choice in choices:
                yield Prompt.of_text(""), f"{delimiter}{choice}"

    def _prompts(self, fields: Fields, shots: list[Turn]) -> list[Prompt]:
        """One prompt, or one per choice when the choices are the inputs."""
        if self.visuals.active:
            text = self._as_text(self.question(fields), "doc_to_text")
            return [self.visuals.prompt(fields, text, chat=self.rendering.chat_messages)]
        spec = self.spec
        system = join(self.rendering.system_instruction, self._make_description(fields) or "", spec.fewshot_delimiter)
        turns = [Turn("system", system), *shots] if system else list(shots)
        prefix = self._make_prefix(fields)
        where = spec.place("doc_to_text")
        if self.shape[0]:
            last = [question_turns(choice, prefix=prefix, target_delimiter="", where=where) for choice in self.choices(fields) or ()]
        else:
            last = [question_turns(self.question(fields), prefix=prefix, target_delimiter=spec.target_delimiter, where=where)]
        chat, multiturn = self.rendering.chat, self.rendering.multiturn
        return [self._with_media(to_prompt(turns + end, chat=chat, multiturn=multiturn), fields) for end in last]

    def _with_media(self, prompt: Prompt, fields: Fields) -> Prompt:
        """lm-eval's `doc_to_image`/`doc_to_audio`: media stand where the text says `<image>`, else before it."""
        if self.spec.doc_to_image is None and self.spec.doc_to_audio is None:
            return prompt
        media: list[Part] = []
        for key, part in (("doc_to_image", image_part), ("doc_to_audio", audio_part)):
            maker = getattr(self.spec, key)
            if maker is not None:
                where = self.spec.place(key)
                values = media_maker(maker, self.columns, where=where)(fields)
                media += [part(value, where=where) for value in (values if isinstance(values, list) else [values])]
        *before, last = prompt.messages
        pieces = last.text.split("<image>")
        if len(pieces) == 1:
            parts: list[Part] = [*media, Text(last.text)]
        else:
            parts = [Text(pieces[0])] if pieces[0] else []
            for piece in pieces[1:]:
                parts += [media.pop(0)] if media else []
                parts += [Text(piece)] if piece else []
            parts += media
        return Prompt((*before, Message(last.role, tuple(parts))), chat=prompt.chat)

    def _as_text(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise BadTask(f"`{key}` must give a text here, not {value!r}", where=self.spec.place(key))
        return value
