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
from assay.core.errors import TaskError
from assay.core.messages import Media, Message, Part, Prompt, Text
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.specs import OutputType, TaskSpec
from assay.tasks.data.rows import Split
from assay.tasks.dialogues import open_dialogue, request_settings
from assay.tasks.documents import RenderingOptions, TaskDocuments
from assay.tasks.files.helper_functions import compatibility_layers
from assay.tasks.prompts.fewshot_pool import FewshotExamples
from assay.tasks.prompts.field_compilers import compile_field, compile_media, compile_text, copy_fields
from assay.tasks.prompts.media_parts import to_audio_part, to_image_part
from assay.tasks.prompts.turns import Turn, build_question_turns, join_texts, prompt_from_turns

__all__ = ["RenderingOptions", "RenderingPass", "Task", "insert_media", "open_task"]

Fields = Mapping[str, Any]


class RenderingPass:
    """One pass over a task, in document order: few-shot sampling remembers where it is."""

    def __init__(self, task: Task, shots: Callable[[Fields], list[Turn]]) -> None:
        self._task = task
        self._shots = shots
        self._make: Callable[[Document], tuple[Request, ...]] | None = None

    def render_requests(self, document: Document) -> tuple[Request, ...]:
        """What is asked about a document."""
        if (
            self._make is None
        ):  # chosen here, because a task that cannot be rendered is its documents' failure
            self._make = self._task.compile_plain_requests(self._shots) or self._render_requests
        return self._make(document)

    def _render_requests(self, document: Document) -> tuple[Request, ...]:
        fields = self._task.copy_for_code(document.fields)
        return tuple(self._task._requests(document, fields, self._shots(fields)))

    def skip(self, document: Document) -> bool:
        """Pass over a document that needs nothing more, drawing what it would have drawn. Always true."""
        if self._task.runs_task_code:
            with suppress(Exception):  # a document that cannot be rendered draws as far as it gets
                self.render_requests(document)
        else:
            self._shots(document.fields)
        return True


class Task(TaskDocuments):
    """One task of a run: its documents, and the requests made of them."""

    @cached_property
    def runs_task_code(self) -> bool:
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
    def copy_for_code(self) -> Callable[[Fields], Fields]:
        """The fields of a document for its makers: a copy where code that is not ours sees them."""
        foreign = type(self) is not Task or self.runs_task_code or self.prompt is not None or self.is_dialogue
        return copy_fields if foreign else _itself

    def compile_plain_requests(
        self, shots: Callable[[Fields], list[Turn]]
    ) -> Callable[[Document], tuple[Request, ...]] | None:
        """A quicker way to the same requests, where there is one: no code but ours sees the document."""
        return compile_plain_requests(self, shots) if self.copy_for_code is _itself else None

    @cached_property
    def fewshot(self) -> FewshotExamples:
        """The examples that precede each question."""
        return FewshotExamples(self)

    @property
    def fewshot_pool(self) -> Sequence[Fields]:
        """The documents examples are drawn from."""
        return self.fewshot.pool

    def start_pass(self) -> RenderingPass:
        """A pass over the documents. Every pass gives the same requests."""
        return RenderingPass(self, self.fewshot.start_sampling())

    def render(self) -> Iterator[tuple[Document, tuple[Request, ...]]]:
        """Every document with its requests, in order."""
        rendering = self.start_pass()
        for document in self.documents():
            yield document, rendering.render_requests(document)

    @cached_property
    def is_dialogue(self) -> bool:
        """Whether answers lead to further questions."""
        return self.spec.output_type.is_dialogue

    def open_dialogue(self, document: Document, first: Generate) -> Dialogue:
        """The conversation that begins with a document's first question."""
        return open_dialogue(self, document, first)

    @cached_property
    def request_settings(self) -> Settings:
        """The settings a request carries."""
        return request_settings(self.spec, self.settings)

    @cached_property
    def _make_description(self) -> Any:
        return compile_field(
            self._normalize_template(self.spec.description), where=self.spec.place("description")
        )

    @cached_property
    def _make_prefix(self) -> Any:
        prefix = self.spec.gen_prefix
        if prefix is None:
            return lambda fields: None
        return compile_text(prefix, self.columns, has_choices=False, where=self.spec.place("gen_prefix"))

    def _requests(self, document: Document, fields: Fields, shots: list[Turn]) -> Iterator[Request]:
        spec = self.spec
        task, index = self.name, document.index
        match spec.output_type:
            case OutputType.LOGLIKELIHOOD_ROLLING:
                prompt = Prompt.of_text(self._as_text(self.target(fields), "doc_to_target"))
                yield RollingLikelihood(task=task, document=index, prompt=prompt)
            case OutputType.LOGLIKELIHOOD:
                prompt = self._prompts(fields, shots)[0]
                continuation = self._as_text(self.target(fields), "doc_to_target")
                yield Likelihood(task=task, document=index, prompt=prompt, continuation=continuation)
            case OutputType.MULTIPLE_CHOICE:
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
            raise TaskError("the document has no choices", where=self.spec.place("doc_to_choice"))
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
        if self.needs_mutual_information:
            nothing = Prompt.of_text("")
            pairs += [(nothing, f"{delimiter}{choice}") for choice in choices]
        return pairs

    @cached_property
    def needs_mutual_information(self) -> bool:
        return any(metric.metric == "acc_mutual_info" for metric in self.spec.metrics)

    def _prompts(self, fields: Fields, shots: list[Turn]) -> list[Prompt]:
        """One prompt, or one per choice when the choices are the inputs."""
        if self.is_plain_text:
            return [Prompt.of_text(self._plain_text(fields, shots))]
        if self.multimodal.is_active:
            return self._multimodal_prompts(fields, shots)
        spec = self.spec
        system = join_texts(
            self.rendering.system_instruction, self._make_description(fields) or "", spec.fewshot_delimiter
        )
        turns = [Turn("system", system), *shots] if system else list(shots)
        prefix = self._make_prefix(fields)
        where = spec.place("doc_to_text")
        if self.shape[0]:
            last = [
                build_question_turns(choice, prefix=prefix, target_delimiter="", where=where)
                for choice in self.choices(fields) or ()
            ]
        else:
            last = [
                build_question_turns(
                    self.question(fields), prefix=prefix, target_delimiter=spec.target_delimiter, where=where
                )
            ]
        chat, multiturn = self.rendering.chat, self.rendering.multiturn
        return [
            self._with_media(prompt_from_turns(turns + end, chat=chat, multiturn=multiturn), fields)
            for end in last
        ]

    def _multimodal_prompts(self, fields: Fields, shots: list[Turn]) -> list[Prompt]:
        """lmms-eval's way: the task's messages for models that chat, else its media before the whole context."""
        if self.rendering.chat_messages and self.spec.output_type.sends_chat_messages:
            return [self.build_messages(fields, shots)]
        seen = self.text_fields(fields)
        texts = [self.context_text(seen, shots)] if not self.shape[0] else list(self.choices(fields) or ())
        return [self.multimodal.build_prompt(fields, text) for text in texts]

    def build_messages(self, fields: Fields, shots: list[Turn]) -> Prompt:
        """The conversation a model that chats is sent. Only a task without media has its context in it."""
        if self.multimodal.doc_to_messages is not None:
            return self.multimodal.build_own_prompt(fields)
        text = (
            self.context_text(fields, shots)
            if self.multimodal.doc_to_visual is None
            else self._as_text(self.question(fields), "doc_to_text")
        )
        return self.multimodal.build_prompt(fields, text, chat=True)

    @property
    def bypasses_context(self) -> bool:
        """Whether prompts are the task's own messages or media and question: no examples, no system message."""
        own = self.multimodal.doc_to_messages is not None or self.multimodal.doc_to_visual is not None
        return own and self.rendering.chat_messages and self.spec.output_type.sends_chat_messages

    @property
    def has_media(self) -> bool:
        """Whether prompts may hold more than text."""
        spec = self.spec
        return self.multimodal.is_active or spec.doc_to_image is not None or spec.doc_to_audio is not None

    @cached_property
    def is_plain_text(self) -> bool:
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
        system = join_texts(self.rendering.system_instruction, description, self.spec.fewshot_delimiter)
        return system + examples + question

    def _with_media(self, prompt: Prompt, fields: Fields) -> Prompt:
        """lm-eval's `doc_to_image`/`doc_to_audio`: media stand where the text says `<image>`, else before it."""
        if self.spec.doc_to_image is None and self.spec.doc_to_audio is None:
            return prompt
        media: list[Media] = []
        for key, part in (("doc_to_image", to_image_part), ("doc_to_audio", to_audio_part)):
            maker = getattr(self.spec, key)
            if maker is not None:
                where = self.spec.place(key)
                values = compile_media(maker, self.columns, where=where)(fields)
                media += [
                    part(value, where=where) for value in (values if isinstance(values, list) else [values])
                ]
        return insert_media(prompt, media)

    def _as_text(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise TaskError(f"`{key}` must give a text here, not {value!r}", where=self.spec.place(key))
        return value


def _itself(fields: Fields) -> Fields:
    return fields


def insert_media(prompt: Prompt, media: Sequence[Media]) -> Prompt:
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
    spec: TaskSpec, rendering: RenderingOptions | None = None, splits: Mapping[str, Split] | None = None
) -> Task:
    """A task bound to its data. One that is written as a class is opened by the layer that knows such classes.

    Raises:
        TaskError: No installed layer knows the class.
    """
    if spec.config.get("class") is None:
        return Task(spec, rendering, splits)
    for layer in compatibility_layers():
        task: Task | None = layer.open_task(spec, rendering, splits)
        if task is not None:
            return task
    raise TaskError(
        f"`{spec.config['class']!r}` is not a class of a task",
        where=spec.place("class"),
        hint="it must derive from lm_eval.api.task.ConfigurableTask",
    )


ExampleTurns = Callable[[Fields], list[Turn]]
RequestBuilder = Callable[[Document], tuple[Request, ...]]


def compile_plain_requests(task: Task, shots: ExampleTurns) -> RequestBuilder | None:
    """What is asked about a document, for a task `Task` itself would ask in plain text; None for one that is more."""
    if not task.is_plain_text or task.media_columns or task.is_dialogue:
        return None
    match task.spec.output_type:
        case OutputType.GENERATE_UNTIL:
            return _generations(task, _contexts(task, shots))
        case OutputType.MULTIPLE_CHOICE if not task.needs_mutual_information:
            return _choices(task, _contexts(task, shots))
        case _:
            return None


def _contexts(task: Task, shots: ExampleTurns) -> Callable[[Fields], str]:
    """Description, examples and question as one text."""
    if task.spec.description or task.rendering.system_instruction:
        return lambda fields: task.context_text(fields, shots(fields))
    question, place = task.text_function, task.spec.place("doc_to_text")
    alone = task.num_fewshot == 0

    def context(fields: Fields) -> str:
        examples = "" if alone else "".join([turn.content + turn.delimiter for turn in shots(fields)])
        text = question(fields)
        if not isinstance(text, str):
            raise TaskError(f"`doc_to_text` must give a text here, not {text!r}", where=place)
        return examples + text

    return context


def _generations(task: Task, context: Callable[[Fields], str]) -> RequestBuilder:
    name, settings, repeats, of_text = task.name, task.request_settings, task.spec.repeats, Prompt.of_text

    def once(document: Document) -> tuple[Request, ...]:
        prompt = of_text(context(document.fields))
        return (Generate(task=name, document=document.index, prompt=prompt, settings=settings),)

    def repeated(document: Document) -> tuple[Request, ...]:
        prompt, index = of_text(context(document.fields)), document.index
        return tuple(
            [
                Generate(task=name, document=index, repeat=repeat, prompt=prompt, settings=settings)
                for repeat in range(repeats)
            ]
        )

    return once if repeats == 1 else repeated


def _choices(task: Task, context: Callable[[Fields], str]) -> RequestBuilder:
    name, delimiter, of_text = task.name, task.spec.target_delimiter, Prompt.of_text
    choices_of, place = task.choices, task.spec.place("doc_to_choice")

    def requests(document: Document) -> tuple[Request, ...]:
        fields, index = document.fields, document.index
        choices = choices_of(fields)
        if not choices:
            raise TaskError("the document has no choices", where=place)
        prompt = of_text(context(fields))
        return tuple(
            [
                Likelihood(
                    task=name, document=index, index=at, prompt=prompt, continuation=f"{delimiter}{choice}"
                )
                for at, choice in enumerate(choices)
            ]
        )

    return requests
