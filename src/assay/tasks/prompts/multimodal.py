"""The multimodal fields of lmms_eval: `doc_to_visual`, `doc_to_messages` and their keyword arguments.

Few-shot examples of both harnesses are rendered in `fewshot_examples.py`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from assay.core.errors import TaskError
from assay.core.records.messages import Message, Part, Prompt, Role, Text
from assay.core.records.specs import TaskSpec
from assay.core.records.tools import ToolCall, ToolResult
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.prompts.media_parts import to_audio_part, to_image_part, to_media_part, to_video_part
from assay.tasks.prompts.tool_history import link_tool_results

__all__ = ["MultimodalRenderer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MultimodalRenderer:
    """Builds the media and messages of documents for one model."""

    doc_to_visual: Callable[..., Any] | str | None
    """A function, or the name of a column."""

    doc_to_messages: Callable[..., Any] | None
    keywords: Mapping[str, Any] | None
    where: str
    check_media: Callable[[Sequence[Any], str], None]
    """Rejects values of a column that name files which the task may not read."""

    @classmethod
    def from_spec(
        cls, spec: TaskSpec, model_name: str, check_media: Callable[[Sequence[Any], str], None]
    ) -> MultimodalRenderer:
        def function(key: str) -> Callable[..., Any] | None:
            maker = getattr(spec, key)
            if maker is None or callable(maker):
                return maker  # type: ignore[no-any-return]
            raise TaskError(
                f"`{key}` must be a function", where=spec.place(key), hint=f"`{key}: !function utils.{key}`"
            )

        return cls(
            doc_to_visual=spec.doc_to_visual
            if isinstance(spec.doc_to_visual, str)
            else function("doc_to_visual"),
            doc_to_messages=function("doc_to_messages"),
            keywords=select_model_keywords(spec.lmms_eval_specific_kwargs, model_name),
            where=spec.place("doc_to_messages" if spec.doc_to_messages is not None else "doc_to_visual"),
            check_media=check_media,
        )

    @property
    def is_active(self) -> bool:
        """Whether the task sets `doc_to_visual` or `doc_to_messages`."""
        return self.doc_to_visual is not None or self.doc_to_messages is not None

    def build_own_prompt(self, fields: Mapping[str, Any]) -> Prompt:
        """Build the prompt from the task's own messages."""
        return self.prompt_from_messages(self.call_doc_to_messages(fields))

    def build_prompt(self, fields: Mapping[str, Any], text: str, *, chat: bool = False) -> Prompt:
        """Build a prompt of one user message: the task's media, then a text."""
        parts: list[Part] = [to_media_part(value, where=self.where) for value in self.load_visuals(fields)]
        return Prompt((Message("user", (*parts, Text(text))),), chat=chat)

    def prompt_from_messages(self, messages: Any) -> Prompt:
        """Convert the messages that task code returned to a prompt."""
        if not isinstance(messages, list):
            raise TaskError(
                f"`doc_to_messages` must return a list of messages, not {messages!r:.80}",
                where=self.where,
            )
        return Prompt(link_tool_results(self._message(one) for one in messages), chat=True)

    def call_doc_to_messages(self, fields: Mapping[str, Any]) -> Any:
        """Call `doc_to_messages`."""
        assert self.doc_to_messages is not None
        if self.keywords is None:
            return self.doc_to_messages(fields)
        if _accepts_keywords(self.doc_to_messages):
            return self.doc_to_messages(fields, lmms_eval_specific_kwargs=self.keywords)
        return (
            self.doc_to_messages(fields, self.keywords)
            if len(_get_parameters(self.doc_to_messages)) == 2
            else self.doc_to_messages(fields)
        )

    def load_visuals(self, fields: Mapping[str, Any]) -> Any:
        """Call `doc_to_visual`, or read the column it names. Return a flat list."""
        if self.doc_to_visual is None:
            return []
        if isinstance(self.doc_to_visual, str):
            if self.doc_to_visual not in fields:
                raise TaskError(
                    f"`doc_to_visual` must be a function or a column, not {self.doc_to_visual!r}",
                    where=self.where,
                    hint=f"columns: {', '.join(fields)}",
                )
            self.check_media([fields[self.doc_to_visual]], self.where)
            return [fields[self.doc_to_visual]]
        takes_two = self.keywords is not None and len(_get_parameters(self.doc_to_visual)) == 2
        values = self.doc_to_visual(fields, self.keywords) if takes_two else self.doc_to_visual(fields)
        if values is None or values == []:
            return []
        return list(_flatten(values))

    def _message(self, message: Any) -> Message:
        role: Any = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role == "tool":
            return Message("tool", (self._tool_result(message),))
        calls = message.get("tool_calls") if role == "assistant" else None
        if calls and (content is None or isinstance(content, str)):
            content = [{"type": "text", "text": content}] if content else []
        if role not in get_args(Role) or not isinstance(content, list):
            raise TaskError(
                "a message must have a role (user, system, assistant, tool) and a list `content`",
                where=self.where,
                hint=f"got {message!r}"[:120],
            )
        parts = tuple(self._part(part) for part in content)
        return Message(role, (*parts, *map(self._tool_call, calls or ())))

    def _tool_result(self, message: Mapping[str, Any]) -> ToolResult:
        """Return the result of a call: `{"role": "tool", "tool_call_id": …, "content": …}`."""
        content = message.get("content")
        if isinstance(content, list):
            parts = [self._part(part) for part in content]
            content = "".join(part.text for part in parts if isinstance(part, Text))
        if not isinstance(content, str):
            raise TaskError("a message with the role `tool` must have text as `content`", where=self.where)
        return ToolResult(content, str(message.get("tool_call_id") or ""), str(message.get("name") or ""))

    def _tool_call(self, call: Any) -> ToolCall:
        """Return a call of an assistant message, in OpenAI's form."""
        own = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(own, Mapping) or not isinstance(own.get("name"), str):
            raise TaskError(f"a tool call needs a `name` and `arguments`, not {call!r:.60}", where=self.where)
        arguments = own.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ToolCall(own["name"], text, str(call.get("id") or ""))

    def _part(self, part: Any) -> Part:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "image", "audio", "video"):
            raise TaskError(
                f"a message part cannot be of type `{kind}`",
                where=self.where,
                hint="text, image, audio or video",
            )
        key = "text" if kind == "text" else "url"
        if part.get(key) is None:
            raise TaskError(f"a message part of type `{kind}` must have `{key}`", where=self.where)
        match kind:
            case "text":
                return Text(str(part["text"]))
            case "image":
                return to_image_part(part["url"], where=self.where)
            case "audio":
                return to_audio_part(part["url"], where=self.where)
            case _:
                return to_video_part(part if isinstance(part["url"], str) else part["url"], where=self.where)


def _flatten(value: Any) -> Iterator[Any]:
    """Flatten a single value, a list or nested lists."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


def select_model_keywords(given: Mapping[str, Any] | None, model_name: str) -> Mapping[str, Any] | None:
    """Select the keyword arguments for a model as lmms_eval does: its own entry, otherwise everything updated with
    `default` (or `dataset`).

    >>> select_model_keywords({"default": {"post": "."}, "qwen": {"post": "!"}}, "qwen")
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


def _get_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    loaded = function.load() if isinstance(function, HelperFunction) else function
    return inspect.signature(loaded).parameters


def _accepts_keywords(function: Callable[..., Any]) -> bool:
    parameters = _get_parameters(function)
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or "lmms_eval_specific_kwargs" in parameters
