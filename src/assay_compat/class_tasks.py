"""Tasks written as Python classes, asked like any other task.

The object's methods say what the documents are, what is asked and how it is judged; prompts, examples, sampling
settings and everything after are Assay's. The engine sees an ordinary task.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from assay.core.documents import Document
from assay.core.errors import AssayError, BadTask, MissingPackage
from assay.core.messages import Message, Prompt, Text
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.specs import MetricSpec, TaskSpec
from assay.tasks.fewshot import Turn
from assay.tasks.functions import HelperFunction
from assay.tasks.media import audio_part, image_part
from assay.tasks.task import Rendering, Task, with_parts
from assay_compat import class_bases
from assay_compat.class_documents import DocumentSplits

__all__ = ["ClassTask", "Context", "is_foreign_class"]

Fields = Mapping[str, Any]


class Context(str):
    """A prompt as class tasks handle it: text, which still knows the messages it stands for."""

    prompt: Prompt

    @classmethod
    def of(cls, prompt: Prompt) -> Context:
        context = cls(prompt.text)
        context.prompt = prompt
        return context

    def __add__(self, more: str) -> Context:
        """Text written after the prompt belongs to its last message."""
        *before, last = self.prompt.messages
        extended = Message(last.role, (*last.parts, Text(str(more))))
        return Context.of(Prompt((*before, extended), chat=self.prompt.chat))


def is_foreign_class(named: Any) -> bool:
    """Whether `class:` names a task class of lm_eval's kind.

    Raises:
        BadTask: It derives from the real lm_eval's classes, because somebody imported those first.
    """
    kind = _class(named)
    if not isinstance(kind, type):
        return False
    if any(one.__module__ == "lm_eval.api.task" for one in kind.__mro__):
        raise BadTask(
            f"`{kind.__name__}` derives from the real lm_eval, which this process had imported already",
            where=getattr(named, "where", ""),
            hint="load tasks before lm_eval, or in another process",
        )
    return issubclass(kind, class_bases.Task)


def _class(named: Any) -> Any:
    return named.load() if isinstance(named, HelperFunction) else named


class ClassTask(Task):
    """A task whose questions and judgement are methods of an object."""

    def __init__(
        self, spec: TaskSpec, rendering: Rendering | None = None, splits: Mapping[str, Any] | None = None
    ) -> None:
        self.path = spec.path
        self._shots_now: list[Turn] = []
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
        """The object, made when first needed. Data that was handed in takes the place of its download."""
        kind = _class(self._written.config["class"])
        subject = kind.__new__(kind)
        subject.asked_by = self
        if self._given_splits is not None:
            subject.dataset = self._given_splits
        config = {
            **{key: value for key, value in self._written.config.items() if key not in ("group", "tag")},
            "metadata": dict(self._written.metadata),
        }
        takes_config = _takes(kind.__init__, "config")
        with self._border():
            subject.__init__(**({"config": config} if takes_config else {}))
        subject.config.task = self.name
        if self.rendering.gen_kwargs:
            subject.set_config("generation_kwargs", dict(self.rendering.gen_kwargs), update=True)
        return subject

    @cached_property
    def _resolved(self) -> TaskSpec:
        subject, written = self.subject, self._written
        with self._border():
            stock = class_bases.spec_of(subject, self.name, self.path)
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
        """The prompt of the document being asked, for the object's `construct_requests`."""
        contexts = [Context.of(prompt) for prompt in self._prompts(fields, self._shots_now)]
        return contexts if len(contexts) > 1 else contexts[0]

    def _requests(self, document: Document, fields: Fields, shots: list[Turn]) -> Iterator[Request]:
        subject, rendering = self.subject, self.rendering
        self._shots_now = shots
        template = self._from_messages if rendering.chat else None
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
            yield from self._translated(instance, document.index, index)

    def _translated(self, instance: Any, document: int, index: int) -> Iterator[Request]:
        """A foreign request as Assay's. Its number is its place: classes may number two requests alike."""
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
                media = _media(given[2], self.path) if len(given) > 2 else []
                settings = Settings(MappingProxyType(values))
                for repeat in range(instance.repeats or 1):
                    yield Generate(
                        **place, repeat=repeat, prompt=with_parts(prompt, media), settings=settings
                    )
            case other:
                raise BadTask(f"the class makes requests of an unknown kind `{other}`", where=self.path)

    def _prompt(self, context: Any) -> Prompt:
        if isinstance(context, Context):
            return context.prompt
        return Prompt((Message("user", (Text(str(context)),)),), chat=self.rendering.chat)

    def _from_messages(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> Context:
        """In the place of a chat template: the messages stay messages, the model's adapter writes them."""
        turns = tuple(Message(one["role"], (Text(str(one["content"])),)) for one in messages)
        return Context.of(Prompt(turns, chat=True))

    def _border(self) -> _Border:
        return _Border(self.name, self.path)


class _Border:
    """Whatever a class raises while it is made becomes an error that says where."""

    def __init__(self, task: str, path: str) -> None:
        self._task, self._path = task, path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, AssayError) or not isinstance(error, Exception):
            return
        if isinstance(error, ModuleNotFoundError) and error.name:
            raise MissingPackage.of(error.name, f"the task `{self._task}`", where=self._path) from None
        raise BadTask(
            f"the class of the task `{self._task}` fails: {type(error).__name__}: {error}", where=self._path
        ) from error


def _takes(function: Any, keyword: str) -> bool:
    parameters = inspect.signature(function).parameters
    return keyword in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _media(given: Mapping[str, Any], where: str) -> list[Any]:
    pictures = [image_part(value, where=where) for value in given.get("visual") or ()]
    return pictures + [audio_part(value, where=where) for value in given.get("audio") or ()]
