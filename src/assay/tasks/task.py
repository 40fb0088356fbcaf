"""`render_requests`: a document and its examples become requests.

Rendering is one pass in document order, because few-shot sampling is; a pass can be repeated and gives the same
requests every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from assay.core.dialogues import Dialogue
from assay.core.documents import Document
from assay.core.errors import BadTask
from assay.core.messages import Media, Message, Part, Prompt, Text
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.specs import TaskSpec
from assay.tasks.dialogue import is_dialogue, open_dialogue, request_settings
from assay.tasks.documents import Rendering, TaskDocuments
from assay.tasks.fewshot import Turn, join, question_turns, to_prompt
from assay.tasks.functions import compatibility_layers
from assay.tasks.makers import field_maker, loan, media_maker, text_maker
from assay.tasks.media import audio_part, image_part
from assay.tasks.plain import plain_requests
from assay.tasks.rows import Split
from assay.tasks.shots import Shots

_CHATS = ("generate_until", "generate_until_multi_round", "generate_until_agentic")
"""What lmms-eval asks models that chat; everything else is a context with media before it."""

__all__ = ["Pass", "Rendering", "Task", "open_task", "with_parts"]

Fields = Mapping[str, Any]


class Pass:
    """One pass over a task, in document order: few-shot sampling remembers where it is."""

    def __init__(self, task: Task, shots: Callable[[Fields], list[Turn]]) -> None:
        self._task = task
        self._shots = shots
        self._make: Callable[[Document], tuple[Request, ...]] | None = None

    def requests(self, document: Document) -> tuple[Request, ...]:
        """What is asked about a document."""
        if (
            self._make is None
        ):  # chosen here, because a task that cannot be rendered is its documents' failure
            self._make = self._task.plain_requests(self._shots) or self._any_requests
        return self._make(document)

    def _any_requests(self, document: Document) -> tuple[Request, ...]:
        fields = self._task.lend(document.fields)
        return tuple(self._task._requests(document, fields, self._shots(fields)))

    def skip(self, document: Document) -> bool:
        """Pass over a document that needs nothing more, drawing what it would have drawn. Always true."""
        if self._task.runs_own_code:
            with suppress(Exception):  # a document that cannot be rendered draws as far as it gets
                self.requests(document)
        else:
            self._shots(document.fields)
        return True


class Task(TaskDocuments):
    """One task of a run: its documents, and the requests made of them."""

    @cached_property
    def runs_own_code(self) -> bool:
        """Whether making a prompt runs functions of the task, which may draw from the global generators."""
        spec = self.spec
        makers = (
            spec.doc_to_text,
            spec.doc_to_target,
            spec.doc_to_choice,
            spec.description,
            spec.doc_to_visual,
        )
        more = (spec.doc_to_messages, spec.doc_to_image, spec.doc_to_audio, spec.fewshot.doc_to_text)
        return any(callable(maker) for maker in (*makers, *more, spec.fewshot.doc_to_target))

    @cached_property
    def lend(self) -> Callable[[Fields], Fields]:
        """The fields of a document for its makers: a copy where code that is not ours sees them."""
        foreign = type(self) is not Task or self.runs_own_code or self.prompt is not None or self.is_dialogue
        return loan if foreign else _itself

    def plain_requests(
        self, shots: Callable[[Fields], list[Turn]]
    ) -> Callable[[Document], tuple[Request, ...]] | None:
        """A quicker way to the same requests, where there is one: no code but ours sees the document."""
        return plain_requests(self, shots) if self.lend is _itself else None

    @cached_property
    def shots(self) -> Shots:
        """The examples that precede each question."""
        return Shots(self)

    @property
    def pool(self) -> Sequence[Fields]:
        """The documents examples are drawn from."""
        return self.shots.pool

    def begin(self) -> Pass:
        """A pass over the documents. Every pass gives the same requests."""
        return Pass(self, self.shots.begin())

    def render(self) -> Iterator[tuple[Document, tuple[Request, ...]]]:
        """Every document with its requests, in order."""
        rendering = self.begin()
        for document in self.documents():
            yield document, rendering.requests(document)

    @cached_property
    def is_dialogue(self) -> bool:
        """Whether answers lead to further questions."""
        return is_dialogue(self.spec)

    def dialogue(self, document: Document, first: Generate) -> Dialogue:
        """The conversation that begins with a document's first question."""
        return open_dialogue(self, document, first)

    @cached_property
    def request_settings(self) -> Settings:
        """The settings a request carries."""
        return request_settings(self.spec, self.settings)

    @cached_property
    def _make_description(self) -> Any:
        return field_maker(self._as_written(self.spec.description), where=self.spec.place("description"))

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
                    yield Likelihood(
                        task=task, document=index, index=at, prompt=prompt, continuation=continuation
                    )
            case _:
                prompt = self._prompts(fields, shots)[0]
                settings = self.request_settings
                for repeat in range(spec.repeats):
                    yield Generate(task=task, document=index, repeat=repeat, prompt=prompt, settings=settings)

    def _pairs(self, fields: Fields, shots: list[Turn]) -> list[tuple[Prompt, str]]:
        """(context, continuation) for every choice, then the unconditional ones for mutual information."""
        choices = self.choices(fields)
        if not choices:
            raise BadTask("the document has no choices", where=self.spec.place("doc_to_choice"))
        delimiter = self.spec.target_delimiter
        if self.rendering.chat:
            prefix = self.spec.gen_prefix
            delimiter = delimiter if prefix and not prefix[-1].isspace() else ""
        prompts = self._prompts(fields, shots)
        if self.shape[0]:
            continuation = f"{delimiter}{self.target(fields)}"
            pairs = [(prompt, continuation) for prompt in prompts]
        else:
            (prompt,) = prompts
            pairs = [(prompt, f"{delimiter}{choice}") for choice in choices]
        if self.wants_mutual_information:
            nothing = Prompt.of_text("")
            pairs += [(nothing, f"{delimiter}{choice}") for choice in choices]
        return pairs

    @cached_property
    def wants_mutual_information(self) -> bool:
        return any(metric.metric == "acc_mutual_info" for metric in self.spec.metrics)

    def _prompts(self, fields: Fields, shots: list[Turn]) -> list[Prompt]:
        """One prompt, or one per choice when the choices are the inputs."""
        if self.is_plain:
            return [Prompt.of_text(self._plain_text(fields, shots))]
        if self.visuals.active:
            return self._multimodal_prompts(fields, shots)
        spec = self.spec
        system = join(
            self.rendering.system_instruction, self._make_description(fields) or "", spec.fewshot_delimiter
        )
        turns = [Turn("system", system), *shots] if system else list(shots)
        prefix = self._make_prefix(fields)
        where = spec.place("doc_to_text")
        if self.shape[0]:
            last = [
                question_turns(choice, prefix=prefix, target_delimiter="", where=where)
                for choice in self.choices(fields) or ()
            ]
        else:
            last = [
                question_turns(
                    self.question(fields), prefix=prefix, target_delimiter=spec.target_delimiter, where=where
                )
            ]
        chat, multiturn = self.rendering.chat, self.rendering.multiturn
        return [
            self._with_media(to_prompt(turns + end, chat=chat, multiturn=multiturn), fields) for end in last
        ]

    def _multimodal_prompts(self, fields: Fields, shots: list[Turn]) -> list[Prompt]:
        """lmms-eval's way: the task's messages for models that chat, else its media before the whole context."""
        if self.rendering.chat_messages and self.spec.output_type in _CHATS:
            return [self.messages(fields, shots)]
        seen = self.text_fields(fields)
        texts = [self.context_text(seen, shots)] if not self.shape[0] else list(self.choices(fields) or ())
        return [self.visuals.prompt(fields, text) for text in texts]

    def messages(self, fields: Fields, shots: list[Turn]) -> Prompt:
        """The conversation a model that chats is sent. Only a task without media has its context in it."""
        if self.visuals.messages is not None:
            return self.visuals.own_prompt(fields)
        text = (
            self.context_text(fields, shots)
            if self.visuals.visual is None
            else self._as_text(self.question(fields), "doc_to_text")
        )
        return self.visuals.prompt(fields, text, chat=True)

    @property
    def asks_alone(self) -> bool:
        """Whether prompts are the task's own messages or media and question: no examples, no system message."""
        own = self.visuals.messages is not None or self.visuals.visual is not None
        return own and self.rendering.chat_messages and self.spec.output_type in _CHATS

    @property
    def has_media(self) -> bool:
        """Whether prompts may hold more than text."""
        spec = self.spec
        return self.visuals.active or spec.doc_to_image is not None or spec.doc_to_audio is not None

    @cached_property
    def is_plain(self) -> bool:
        """Whether a prompt is just text: no chat, no media, no answer begun, the question in the text."""
        spec = self.spec
        return not (self.rendering.chat or self.has_media or spec.gen_prefix is not None or self.shape[0])

    def _plain_text(self, fields: Fields, shots: list[Turn]) -> str:
        """What `_prompts` makes in the plain case, without building turns for it."""
        return self.context_text(self.text_fields(fields), shots)

    def context_text(self, fields: Fields, shots: list[Turn]) -> str:
        """Description, examples and question as one text."""
        question = self._as_text(self.question(fields), "doc_to_text")
        examples = "".join([turn.content + turn.delimiter for turn in shots])
        if not self.spec.description and not self.rendering.system_instruction:
            return examples + question
        description = self._make_description(fields) or ""
        system = join(self.rendering.system_instruction, description, self.spec.fewshot_delimiter)
        return system + examples + question

    def _with_media(self, prompt: Prompt, fields: Fields) -> Prompt:
        """lm-eval's `doc_to_image`/`doc_to_audio`: media stand where the text says `<image>`, else before it."""
        if self.spec.doc_to_image is None and self.spec.doc_to_audio is None:
            return prompt
        media: list[Media] = []
        for key, part in (("doc_to_image", image_part), ("doc_to_audio", audio_part)):
            maker = getattr(self.spec, key)
            if maker is not None:
                where = self.spec.place(key)
                values = media_maker(maker, self.columns, where=where)(fields)
                media += [
                    part(value, where=where) for value in (values if isinstance(values, list) else [values])
                ]
        return with_parts(prompt, media)

    def _as_text(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise BadTask(f"`{key}` must give a text here, not {value!r}", where=self.spec.place(key))
        return value


def _itself(fields: Fields) -> Fields:
    return fields


def with_parts(prompt: Prompt, media: Sequence[Media]) -> Prompt:
    """The prompt with media where its last message says `<image>`, else before the text of that message."""
    if not media:
        return prompt
    waiting = list(media)
    *before, last = prompt.messages
    first, *rest = last.text.split("<image>")
    if not rest:
        return Prompt((*before, Message(last.role, (*waiting, Text(first)))), chat=prompt.chat)
    parts: list[Part] = [Text(first)] if first else []
    for piece in rest:
        if waiting:
            parts.append(waiting.pop(0))
        else:
            piece = f"<image>{piece}"  # more places than media: the rest stays as written
        parts += [Text(piece)] if piece else []
    return Prompt((*before, Message(last.role, (*parts, *waiting))), chat=prompt.chat)


def open_task(
    spec: TaskSpec, rendering: Rendering | None = None, splits: Mapping[str, Split] | None = None
) -> Task:
    """A task bound to its data. One that is written as a class is opened by the layer that knows such classes.

    Raises:
        BadTask: No installed layer knows the class.
    """
    if spec.config.get("class") is None:
        return Task(spec, rendering, splits)
    for layer in compatibility_layers():
        task: Task | None = layer.open_task(spec, rendering, splits)
        if task is not None:
            return task
    raise BadTask(
        f"`{spec.config['class']!r}` is not a class of a task",
        where=spec.place("class"),
        hint="it must derive from lm_eval.api.task.ConfigurableTask",
    )
