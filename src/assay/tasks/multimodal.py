"""lmms-eval's side of the task language: `doc_to_visual`, `doc_to_messages` and their keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from assay.core.errors import BadTask
from assay.core.messages import Message, Part, Prompt, Role, Text
from assay.core.specs import TaskSpec
from assay.tasks.functions import HelperFunction
from assay.tasks.media import audio_part, image_part, media_part, video_part

__all__ = ["Visuals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visuals:
    """How a document's media and messages are made for one model."""

    visual: Callable[..., Any] | str | None
    """A function, or the name of a column."""

    messages: Callable[..., Any] | None
    keywords: Mapping[str, Any] | None
    where: str

    @classmethod
    def of(cls, spec: TaskSpec, model_name: str) -> Visuals:
        def function(key: str) -> Callable[..., Any] | None:
            maker = getattr(spec, key)
            if maker is None or callable(maker):
                return maker  # type: ignore[no-any-return]
            raise BadTask(
                f"`{key}` must be a function", where=spec.place(key), hint=f"`{key}: !function utils.{key}`"
            )

        return cls(
            visual=spec.doc_to_visual if isinstance(spec.doc_to_visual, str) else function("doc_to_visual"),
            messages=function("doc_to_messages"),
            keywords=specific_keywords(spec.lmms_eval_specific_kwargs, model_name),
            where=spec.place("doc_to_messages" if spec.doc_to_messages is not None else "doc_to_visual"),
        )

    @property
    def active(self) -> bool:
        """Whether the task has a multimodal side at all."""
        return self.visual is not None or self.messages is not None

    def own_prompt(self, fields: Mapping[str, Any]) -> Prompt:
        """The messages the task makes itself."""
        return self.written(self.own_messages(fields))

    def prompt(self, fields: Mapping[str, Any], text: str, *, chat: bool = False) -> Prompt:
        """The task's visuals, then a text, as one user message."""
        parts: list[Part] = [media_part(value, where=self.where) for value in self.visuals(fields)]
        return Prompt((Message("user", (*parts, Text(text))),), chat=chat)

    def written(self, messages: Any) -> Prompt:
        """Messages as a task's helper writes them."""
        if not isinstance(messages, list):
            raise BadTask(
                f"`doc_to_messages` must return a list of messages, not {messages!r:.80}",
                where=self.where,
            )
        return Prompt(tuple(self._message(one) for one in messages), chat=True)

    def own_messages(self, fields: Mapping[str, Any]) -> Any:
        """What `doc_to_messages` returns."""
        assert self.messages is not None
        if self.keywords is None:
            return self.messages(fields)
        if _takes_keywords(self.messages):
            return self.messages(fields, lmms_eval_specific_kwargs=self.keywords)
        return (
            self.messages(fields, self.keywords)
            if len(_parameters(self.messages)) == 2
            else self.messages(fields)
        )

    def visuals(self, fields: Mapping[str, Any]) -> Any:
        """What `doc_to_visual` returns; an empty list for nothing."""
        if self.visual is None:
            return []
        if isinstance(self.visual, str):
            if self.visual not in fields:
                raise BadTask(
                    f"`doc_to_visual` must be a function or a column, not {self.visual!r}",
                    where=self.where,
                    hint=f"columns: {', '.join(fields)}",
                )
            return [fields[self.visual]]
        takes_two = self.keywords is not None and len(_parameters(self.visual)) == 2
        made = self.visual(fields, self.keywords) if takes_two else self.visual(fields)
        if made is None or made == []:
            return []
        return list(_flat(made))

    def _message(self, message: Any) -> Message:
        role: Any = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role not in get_args(Role) or not isinstance(content, list):
            raise BadTask(
                "a message must have a role (user, system, assistant) and a list `content`",
                where=self.where,
                hint=f"got {message!r}"[:120],
            )
        return Message(role, tuple(self._part(part) for part in content))

    def _part(self, part: Any) -> Part:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "image", "audio", "video"):
            raise BadTask(
                f"a message part cannot be of type `{kind}`",
                where=self.where,
                hint="text, image, audio or video",
            )
        key = "text" if kind == "text" else "url"
        if part.get(key) is None:
            raise BadTask(f"a message part of type `{kind}` must have `{key}`", where=self.where)
        match kind:
            case "text":
                return Text(str(part["text"]))
            case "image":
                return image_part(part["url"], where=self.where)
            case "audio":
                return audio_part(part["url"], where=self.where)
            case _:
                return video_part(part if isinstance(part["url"], str) else part["url"], where=self.where)


def _flat(made: Any) -> Iterator[Any]:
    """What a helper returned, one by one: a medium alone, a list, lists in lists."""
    if isinstance(made, (list, tuple)):
        for one in made:
            yield from _flat(one)
    else:
        yield made


def specific_keywords(given: Mapping[str, Any] | None, model_name: str) -> Mapping[str, Any] | None:
    """lmms-eval's rule: the model's own entry alone; else everything, updated with `default` (or `dataset`).

    >>> specific_keywords({"default": {"post": "."}, "qwen": {"post": "!"}}, "qwen")
    {'post': '!'}
    """
    if given is None:
        return None
    if model_name in given:
        return given[model_name]  # type: ignore[no-any-return]
    for key in ("default", "dataset"):
        if key in given:
            return {**given, **given[key]}
    return given


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    loaded = function.load() if isinstance(function, HelperFunction) else function
    return inspect.signature(loaded).parameters


def _takes_keywords(function: Callable[..., Any]) -> bool:
    parameters = _parameters(function)
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or "lmms_eval_specific_kwargs" in parameters
