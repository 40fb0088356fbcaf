"""Render documents and their few-shot examples to requests.

A pass renders documents in order, because few-shot sampling depends on the order. Every pass gives the same requests.
Most tasks ask in plain text and run no code of their own: `compile_plain_requests` looks up their fields once and not
again for each document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from assay.core.errors import AssayError, TaskError
from assay.core.records.dialogues import Dialogue
from assay.core.records.documents import Document
from assay.core.records.messages import Media, Message, Part, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.specs import OutputType, TaskSpec
from assay.tasks.data.rows import Split
from assay.tasks.dialogues import open_dialogue, request_settings
from assay.tasks.documents import RenderingOptions, TaskDocuments
from assay.tasks.files.helper_functions import compatibility_layers
from assay.tasks.prompts.fewshot_examples import ExampleSource, FewshotExamples
from assay.tasks.prompts.field_compilers import compile_field, compile_media, compile_text, copy_fields
from assay.tasks.prompts.media_parts import to_audio_part, to_image_part
from assay.tasks.prompts.tool_prompts import write_tools_as_text
from assay.tasks.prompts.turns import Turn, build_question_turns, join_texts, prompt_from_turns

__all__ = ["RenderingOptions", "RenderingPass", "Task", "insert_media", "open_task"]

Fields = Mapping[str, Any]


class RenderingPass:
    """One pass over the documents of a task, in order. Holds the state of few-shot sampling."""

    def __init__(self, task: Task, examples: ExampleSource) -> None:
        self._task = task
        self._draw_examples = examples.draw
        self._prefetch_examples = examples.prefetch
        self._render: Callable[[Document], tuple[Request, ...]] | None = None
        self._next = 0 if task.rendering.draws_for_all else None
        """The document after the last one, if documents that are left out draw few-shot examples."""
        self._changed_fields: Fields | None = None

    def prefetch(self, documents: int) -> None:
        """Read the few-shot examples of this many following documents together."""
        if self._prefetch_examples is not None:
            self._prefetch_examples(documents)

    def render_requests(self, document: Document) -> tuple[Request, ...]:
        """Render the requests of a document."""
        if self._next is not None:
            self._skip_to(document)
        if (
            self._render is None
        ):  # created here, so that an error in a field fails the document and not the run
            self._render = self._task.compile_plain_requests(self._draw_examples) or self._render_requests
        return self._render(document)

    def _render_requests(self, document: Document) -> tuple[Request, ...]:
        self._changed_fields = None
        fields = self._task.copy_for_code(document.fields)
        requests = tuple(self._task._requests(document, fields, self._draw_examples(fields)))
        if type(fields) is dict and _has_changed(document.fields, fields):
            self._changed_fields = fields
        return requests

    def add_changes(self, document: Document) -> Document:
        """Return the document that was rendered last, with the fields that task code changed while it built the prompt."""
        if self._changed_fields is None:
            return document
        return replace(document, prompt_fields=self._changed_fields)

    def skip(self, document: Document) -> bool:
        """Skip a document, but draw its few-shot examples to keep the random state. Always returns True."""
        self._skip_to(document)
        if self._task.runs_task_code:
            with suppress(Exception):  # a document that fails to render draws up to the failure
                self.render_requests(document)
        else:
            self._draw_examples(document.fields)
        return True

    def _skip_to(self, document: Document) -> None:
        """Draw the few-shot examples of the documents between the last one and this one."""
        if self._next is None or not (self._task.num_fewshot or self._task.runs_task_code):
            return
        start, self._next = self._next, None  # skipping renders, too
        for index in range(start, document.index):
            self.skip(Document(task=self._task.name, index=index, fields=self._task.rows[index]))
        self._next = document.index + 1


class Task(TaskDocuments):
    """One task of a run: its documents and their requests."""

    @cached_property
    def runs_task_code(self) -> bool:
        """Whether rendering a prompt runs task code, which may use the global random generators."""
        spec = self.spec
        makers = (
            spec.doc_to_text,
            spec.doc_to_target,
            spec.doc_to_choice,
            spec.description,
            spec.doc_to_visual,
        )
        more = (
            spec.doc_to_messages,
            spec.doc_to_image,
            spec.doc_to_audio,
            spec.tools,
            spec.fewshot.doc_to_text,
        )
        return any(callable(source) for source in (*makers, *more, spec.fewshot.doc_to_target))

    @cached_property
    def copy_for_code(self) -> Callable[[Fields], Fields]:
        """The function that prepares a document's fields for rendering: a copy if task code gets them."""
        runs_code = (
            type(self) is not Task or self.runs_task_code or self.prompt is not None or self.is_dialogue
        )
        return copy_fields if runs_code else _identity

    def compile_plain_requests(
        self, examples: Callable[[Fields], list[Turn]]
    ) -> Callable[[Document], tuple[Request, ...]] | None:
        """Return a faster function for the same requests, or None if task code gets the document."""
        return compile_plain_requests(self, examples) if self.copy_for_code is _identity else None

    @cached_property
    def fewshot(self) -> FewshotExamples:
        """The few-shot examples of the task."""
        return FewshotExamples(self)

    @property
    def fewshot_pool(self) -> Sequence[Fields]:
        """The documents from which few-shot examples are drawn."""
        return self.fewshot.pool

    def load_at_random(self) -> None:
        """Load the documents in the order in which lm-eval does, for code that draws from the global generators.

        lm-eval processes the examples first, even if it asks without examples, and then reads the first document.
        """
        process = self.spec.fewshot.process_docs or self.spec.process_docs
        if getattr(process, "may_draw_at_random", False) and not self.spec.dialect.hides_media_columns:
            with suppress(AssayError):  # a task without examples may name a split that does not exist
                _ = self.fewshot_pool
        _ = self.rows
        with suppress(Exception):  # reported when the document is rendered
            _ = self.shape

    def start_pass(self) -> RenderingPass:
        """Start a pass over the documents. Every pass gives the same requests."""
        return RenderingPass(self, self.fewshot.start_sampling())

    def render(self) -> Iterator[tuple[Document, tuple[Request, ...]]]:
        """Iterate over all documents with their requests, in order."""
        rendering = self.start_pass()
        for document in self.documents():
            requests = rendering.render_requests(document)
            yield rendering.add_changes(document), requests

    @cached_property
    def is_dialogue(self) -> bool:
        """Whether answers lead to further questions."""
        return self.spec.output_type.is_dialogue

    def open_dialogue(self, document: Document, first: Generate) -> Dialogue:
        """Open the dialogue that starts with a document's first request."""
        return open_dialogue(self, document, first)

    @cached_property
    def request_settings(self) -> Settings:
        """The settings of a request."""
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

    def _requests(self, document: Document, fields: Fields, examples: list[Turn]) -> Iterator[Request]:
        spec = self.spec
        task, index = self.name, document.index
        match spec.output_type:
            case OutputType.LOGLIKELIHOOD_ROLLING:
                prompt = Prompt.of_text(self._require_text(self.target(fields), "doc_to_target"))
                yield RollingLikelihood(task=task, document=index, prompt=prompt)
            case OutputType.LOGLIKELIHOOD:
                prompt = self._build_prompts(fields, examples)[0]
                continuation = self._require_text(self.target(fields), "doc_to_target")
                yield Likelihood(task=task, document=index, prompt=prompt, continuation=continuation)
            case OutputType.MULTIPLE_CHOICE:
                for choice, (prompt, continuation) in enumerate(self._choice_pairs(fields, examples)):
                    yield Likelihood(
                        task=task, document=index, index=choice, prompt=prompt, continuation=continuation
                    )
            case _:
                prompt = self._build_prompts(fields, examples)[0]
                settings = self.request_settings
                tools = self.find_tools(fields)
                if (tools is not None or prompt.chat) and self.tool_syntax:
                    prompt = write_tools_as_text(prompt, tools, self.tool_syntax)
                for repeat in range(spec.repeats):
                    yield Generate(
                        task=task,
                        document=index,
                        repeat=repeat,
                        prompt=prompt,
                        settings=settings,
                        tools=tools,
                        response_format=spec.response_format,
                    )

    def _choice_pairs(self, fields: Fields, examples: list[Turn]) -> list[tuple[Prompt, str]]:
        """Return (context, continuation) for every choice, then unconditional pairs for mutual information."""
        choices = self.choices(fields)
        if not choices:
            raise TaskError("the document has no choices", where=self.spec.place("doc_to_choice"))
        delimiter = self.spec.target_delimiter
        if self.rendering.chat:
            prefix = self.spec.gen_prefix
            delimiter = delimiter if prefix and not prefix[-1].isspace() else ""
        prompts = self._build_prompts(fields, examples)
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

    def _build_prompts(self, fields: Fields, examples: list[Turn]) -> list[Prompt]:
        """Return one prompt, or one per choice if the choices are the inputs."""
        if self.is_plain_text:
            return [Prompt.of_text(self._plain_text(fields, examples))]
        if self.multimodal.is_active:
            return self._multimodal_prompts(fields, examples)
        spec = self.spec
        if spec.dialect.drops_context_of_inputs and self.shape[0]:
            return [Prompt.of_text(choice) for choice in self.choices(fields) or ()]
        system = self._join_system(self._make_description(fields) or "")
        turns = [Turn("system", system), *examples] if system else list(examples)
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

    def _multimodal_prompts(self, fields: Fields, examples: list[Turn]) -> list[Prompt]:
        """Build prompts as lmms_eval does: chat messages if the model accepts them, otherwise media and context."""
        if self.rendering.chat_messages and self.spec.output_type.sends_chat_messages:
            return [self.build_messages(fields, examples)]
        visible_fields = self.text_fields(fields)
        texts = (
            [self.context_text(visible_fields, examples)]
            if not self.shape[0]
            else list(self.choices(fields) or ())
        )
        return [self.multimodal.build_prompt(fields, text) for text in texts]

    def build_messages(self, fields: Fields, examples: list[Turn]) -> Prompt:
        """Build the chat messages. Only a task without media includes its context."""
        if self.multimodal.doc_to_messages is not None:
            return self.multimodal.build_own_prompt(fields)
        text = (
            self.context_text(fields, examples)
            if self.multimodal.doc_to_visual is None
            else self._require_text(self.question(fields), "doc_to_text")
        )
        return self.multimodal.build_prompt(fields, text, chat=True)

    @property
    def bypasses_context(self) -> bool:
        """Whether prompts have no few-shot examples and no system message, only the task's own messages or media."""
        own = self.multimodal.doc_to_messages is not None or self.multimodal.doc_to_visual is not None
        return own and self.rendering.chat_messages and self.spec.output_type.sends_chat_messages

    @cached_property
    def has_media(self) -> bool:
        """Whether prompts may contain media."""
        spec = self.spec
        return self.multimodal.is_active or spec.doc_to_image is not None or spec.doc_to_audio is not None

    @cached_property
    def is_plain_text(self) -> bool:
        """Whether a prompt is one text: no chat, no media, no answer prefix, and the choices are not the inputs."""
        spec = self.spec
        return not (self.rendering.chat or self.has_media or spec.gen_prefix is not None or self.shape[0])

    def _plain_text(self, fields: Fields, examples: list[Turn]) -> str:
        """Build a plain text prompt without building turns."""
        return self.context_text(self.text_fields(fields), examples)

    def context_text(self, fields: Fields, examples: list[Turn]) -> str:
        """Return the description, the few-shot examples and the question as one text."""
        question = self._require_text(self.question(fields), "doc_to_text")
        example_text = "".join([turn.content + turn.delimiter for turn in examples])
        if not self.spec.description and not self.rendering.system_instruction:
            return example_text + question
        system = self._join_system(self._make_description(fields) or "")
        return system + example_text + question

    def _join_system(self, description: str) -> str:
        """Join the system instruction of the run and the description of the task."""
        instruction, delimiter = self.rendering.system_instruction, self.spec.fewshot_delimiter
        if instruction and description and self.spec.dialect.always_delimits_description:
            return f"{instruction}{delimiter}{description}"
        return join_texts(instruction, description, delimiter)

    def _with_media(self, prompt: Prompt, fields: Fields) -> Prompt:
        """Insert the media of `doc_to_image` and `doc_to_audio` of lm_eval."""
        if self.spec.doc_to_image is None and self.spec.doc_to_audio is None:
            return prompt
        media: list[Media] = []
        for key, part in (("doc_to_image", to_image_part), ("doc_to_audio", to_audio_part)):
            source = getattr(self.spec, key)
            if source is not None:
                where = self.spec.place(key)
                values = compile_media(source, self.columns, where=where)(fields)
                values = values if isinstance(values, list) else [values]
                if not callable(source):
                    self.check_media(values, where)
                media += [part(value, where=where) for value in values]
        return insert_media(prompt, media)

    def _require_text(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise TaskError(f"`{key}` must return text here, not {value!r}", where=self.spec.place(key))
        return value


def _has_changed(before: Fields, after: Fields) -> bool:
    """Whether task code changed its copy of a document. Values that cannot be compared, such as arrays, count as equal."""
    if before.keys() != after.keys():
        return True
    for key, value in after.items():
        old = before[key]
        if value is not old:
            with suppress(Exception):  # the items of a list can be arrays or objects of the task
                if bool(value != old):
                    return True
    return False


def _identity(fields: Fields) -> Fields:
    return fields


def insert_media(prompt: Prompt, media: Sequence[Media]) -> Prompt:
    """Insert media at the `<image>` placeholders of the last message, or before its text."""
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
            piece = f"<image>{piece}"  # more placeholders than media: keep the rest
        parts += [Text(piece)] if piece else []
    return Prompt((*before, Message(last.role, (*parts, *waiting))), chat=prompt.chat)


def open_task(
    spec: TaskSpec, rendering: RenderingOptions | None = None, splits: Mapping[str, Split] | None = None
) -> Task:
    """Open a task with its data. A compatibility layer opens tasks that are Python classes.

    Raises:
        TaskError: No installed layer supports the class.
    """
    if spec.config.get("class") is None:
        return Task(spec, rendering, splits)
    for layer in compatibility_layers():
        task: Task | None = layer.open_task(spec, rendering, splits)
        if task is not None:
            return task
    raise TaskError(
        f"`{spec.config['class']!r}` is not a task class",
        where=spec.place("class"),
        hint="it must derive from lm_eval.api.task.ConfigurableTask",
    )


ExampleTurns = Callable[[Fields], list[Turn]]
RequestBuilder = Callable[[Document], tuple[Request, ...]]


def compile_plain_requests(task: Task, examples: ExampleTurns) -> RequestBuilder | None:
    """Return a function that renders the requests of a plain text task, or None for other tasks."""
    if not task.is_plain_text or task.media_columns or task.is_dialogue:
        return None
    if task.spec.tools is not None or task.spec.response_format is not None:
        return None
    match task.spec.output_type:
        case OutputType.GENERATE_UNTIL:
            return _compile_generations(task, _compile_context(task, examples))
        case OutputType.MULTIPLE_CHOICE if not task.needs_mutual_information:
            return _compile_choices(task, _compile_context(task, examples))
        case _:
            return None


def _compile_context(task: Task, examples: ExampleTurns) -> Callable[[Fields], str]:
    """Return a function that renders the description, the few-shot examples and the question as one text."""
    if task.spec.description or task.rendering.system_instruction:
        return lambda fields: task.context_text(fields, examples(fields))
    question, place = task.text_function, task.spec.place("doc_to_text")
    has_examples = task.num_fewshot != 0

    def context(fields: Fields) -> str:
        turns = examples(fields) if has_examples else []
        example_text = "".join([turn.content + turn.delimiter for turn in turns])
        text = question(fields)
        if not isinstance(text, str):
            raise TaskError(f"`doc_to_text` must return text here, not {text!r}", where=place)
        return example_text + text

    return context


def _compile_generations(task: Task, context: Callable[[Fields], str]) -> RequestBuilder:
    name, settings, repeats, of_text = task.name, task.request_settings, task.spec.repeats, Prompt.of_text

    def render_once(document: Document) -> tuple[Request, ...]:
        prompt = of_text(context(document.fields))
        return (Generate(task=name, document=document.index, prompt=prompt, settings=settings),)

    def render_repeats(document: Document) -> tuple[Request, ...]:
        prompt, index = of_text(context(document.fields)), document.index
        return tuple(
            [
                Generate(task=name, document=index, repeat=repeat, prompt=prompt, settings=settings)
                for repeat in range(repeats)
            ]
        )

    return render_once if repeats == 1 else render_repeats


def _compile_choices(task: Task, context: Callable[[Fields], str]) -> RequestBuilder:
    name, delimiter, of_text = task.name, task.spec.target_delimiter, Prompt.of_text
    get_choices, place = task.choices, task.spec.place("doc_to_choice")

    def requests(document: Document) -> tuple[Request, ...]:
        fields, index = document.fields, document.index
        choices = get_choices(fields)
        if not choices:
            raise TaskError("the document has no choices", where=place)
        prompt = of_text(context(fields))
        return tuple(
            [
                Likelihood(
                    task=name,
                    document=index,
                    index=number,
                    prompt=prompt,
                    continuation=f"{delimiter}{choice}",
                )
                for number, choice in enumerate(choices)
            ]
        )

    return requests
