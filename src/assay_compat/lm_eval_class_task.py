"""Adapter from task classes of lm_eval to Assay tasks.

The object's methods define documents, requests and scoring. Assay builds prompts, few-shot examples and sampling
settings, so that the engine sees an ordinary task.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.records.documents import Document
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.specs import MetricSpec, TaskSpec
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.prompts.media_parts import to_audio_part, to_image_part
from assay.tasks.prompts.turns import Turn
from assay.tasks.task import RenderingOptions, Task, insert_media
from assay_compat import lm_eval_task_bases
from assay_compat.class_task_splits import DocumentSplits

__all__ = ["ClassTask", "Context", "is_lm_eval_class"]

Fields = Mapping[str, Any]


class Context(str):
    """A prompt as class tasks see it: a string that keeps the underlying messages."""

    prompt: Prompt

    @classmethod
    def of(cls, prompt: Prompt) -> Context:
        context = cls(prompt.text)
        context.prompt = prompt
        return context

    def __add__(self, more: str) -> Context:
        """Append text to the last message of the prompt."""
        *before, last = self.prompt.messages
        extended = Message(last.role, (*last.parts, Text(str(more))))
        return Context.of(Prompt((*before, extended), chat=self.prompt.chat))


def is_lm_eval_class(named: Any) -> bool:
    """Return whether `class:` names a task class of lm_eval.

    Raises:
        TaskError: The class derives from the installed lm_eval, which was imported before the shims.
    """
    kind = _resolve_class(named)
    if not isinstance(kind, type):
        return False
    if any(one.__module__ == "lm_eval.api.task" for one in kind.__mro__):
        raise TaskError(
            f"`{kind.__name__}` derives from the installed lm_eval, which this process imported before Assay's shims",
            where=getattr(named, "where", ""),
            hint="load tasks before importing lm_eval, or use another process",
        )
    return issubclass(kind, lm_eval_task_bases.Task)


def _resolve_class(named: Any) -> Any:
    return named.load() if isinstance(named, HelperFunction) else named


class ClassTask(Task):
    """A task whose documents, requests and scoring are methods of an object."""

    def __init__(
        self,
        spec: TaskSpec,
        rendering: RenderingOptions | None = None,
        splits: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = spec.path
        self._current_examples: list[Turn] = []
        super().__init__(spec, rendering, splits)

    @property
    def name(self) -> str:
        return self._written.name

    @property
    def spec(self) -> TaskSpec:
        return self._resolved

    @spec.setter
    def spec(self, written: TaskSpec) -> None:
        self._written = written

    @cached_property
    def subject(self) -> Any:
        """The task object, created on first use. Given splits replace its download."""
        kind = _resolve_class(self._written.config["class"])
        subject = kind.__new__(kind)
        subject.assay_task = self
        if self._splits_override is not None:
            subject.dataset = self._splits_override
        config = {
            **{key: value for key, value in self._written.config.items() if key not in ("group", "tag")},
            "metadata": dict(self._written.metadata),
        }
        takes_config = _accepts_keyword(kind.__init__, "config")
        with self._wrap_class_errors():
            subject.__init__(**({"config": config} if takes_config else {}))
        subject.config.task = self.name
        if self.rendering.gen_kwargs:
            subject.set_config("generation_kwargs", dict(self.rendering.gen_kwargs), update=True)
        return subject

    @cached_property
    def _resolved(self) -> TaskSpec:
        subject, written = self.subject, self._written
        with self._wrap_class_errors():
            stock = lm_eval_task_bases.build_class_spec(subject, self.name, self.path)
            directions = dict(subject.higher_is_better())
            metrics = tuple(
                MetricSpec(metric=metric, aggregation=function, higher_is_better=directions.get(metric))
                for metric, function in subject.aggregation().items()
            )
        return replace(
            stock,
            alias=written.alias,
            tags=written.tags,
            num_fewshot=stock.num_fewshot if written.num_fewshot is None else written.num_fewshot,
            doc_to_text=subject.doc_to_text,
            doc_to_target=subject.doc_to_target,
            doc_to_choice=None,
            doc_to_image=None,
            doc_to_audio=None,
            process_results=subject.process_results,
            metrics=metrics,
            metadata={**written.metadata, **stock.metadata},
            config=written.config,
            places=written.places,
        )

    @cached_property
    def splits(self) -> Mapping[str, Any]:
        return DocumentSplits(self.subject)

    def context(self, fields: Fields) -> Any:
        """Return the prompt of the current document for the object's `construct_requests`."""
        contexts = [Context.of(prompt) for prompt in self._build_prompts(fields, self._current_examples)]
        return contexts if len(contexts) > 1 else contexts[0]

    def _requests(self, document: Document, fields: Fields, examples: list[Turn]) -> Iterator[Request]:
        subject, rendering = self.subject, self.rendering
        self._current_examples = examples
        template = self._build_context if rendering.chat else None
        context = subject.fewshot_context(
            fields,
            num_fewshot=self.num_fewshot,
            system_instruction=rendering.system_instruction,
            apply_chat_template=rendering.chat,
            fewshot_as_multiturn=rendering.multiturn,
            chat_template=template,
            gen_prefix=subject.doc_to_prefix(fields),
        )
        instances = subject.construct_requests(
            doc=fields,
            ctx=context,
            metadata=(self.name, document.index, self.spec.repeats),
            apply_chat_template=rendering.chat,
            chat_template=template,
        )
        for index, instance in enumerate(instances if isinstance(instances, list) else [instances]):
            yield from self._translate_instance(instance, document.index, index)

    def _translate_instance(self, instance: Any, document: int, index: int) -> Iterator[Request]:
        """Translate an `Instance` to requests, numbered by position because classes may repeat an `idx`."""
        given = instance.args
        prompt = self._prompt(given[0])
        place: dict[str, Any] = {"task": self.name, "document": document, "index": index}
        match instance.request_type:
            case "loglikelihood" | "multiple_choice":
                yield Likelihood(**place, prompt=prompt, continuation=str(given[1]))
            case "loglikelihood_rolling":
                yield RollingLikelihood(**place, prompt=prompt)
            case "generate_until":
                values = {**(given[1] if len(given) > 1 else {}), **self.rendering.gen_kwargs}
                media = _build_media(given[2], self.path) if len(given) > 2 else []
                settings = Settings(MappingProxyType(values))
                for repeat in range(instance.repeats or 1):
                    yield Generate(
                        **place, repeat=repeat, prompt=insert_media(prompt, media), settings=settings
                    )
            case other:
                raise TaskError(f"the class creates requests of unknown type `{other}`", where=self.path)

    def _prompt(self, context: Any) -> Prompt:
        if isinstance(context, Context):
            return context.prompt
        return Prompt((Message("user", (Text(str(context)),)),), chat=self.rendering.chat)

    def _build_context(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> Context:
        """Keep the messages; the model adapter applies the chat template later."""
        turns = tuple(Message(one["role"], (Text(str(one["content"])),)) for one in messages)
        return Context.of(Prompt(turns, chat=True))

    def _wrap_class_errors(self) -> _ClassErrors:
        return _ClassErrors(self.name, self.path)


class _ClassErrors:
    """Converts errors of class code to task errors with a location."""

    def __init__(self, task: str, path: str) -> None:
        self._task, self._path = task, path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, AssayError) or not isinstance(error, Exception):
            return
        if isinstance(error, ModuleNotFoundError) and error.name:
            raise MissingPackage.of(error.name, f"the task `{self._task}`", where=self._path) from None
        raise TaskError(
            f"the class of the task `{self._task}` failed: {type(error).__name__}: {error}", where=self._path
        ) from error


def _accepts_keyword(function: Any, keyword: str) -> bool:
    parameters = inspect.signature(function).parameters
    return keyword in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _build_media(given: Mapping[str, Any], where: str) -> list[Any]:
    images = [to_image_part(value, where=where) for value in given.get("visual") or ()]
    return images + [to_audio_part(value, where=where) for value in given.get("audio") or ()]
