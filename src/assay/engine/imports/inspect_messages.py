"""Model calls of samples of inspect_ai as requests and responses: messages, tools, media, usage and errors."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Role, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, Finish, LogProbability, Response, Usage
from assay.core.records.tools import Tool, ToolCall, ToolResult, Tools
from assay.engine.imports.input_files import parse_number

__all__ = ["RequestReader"]

_ATTACHMENT = "attachment://"
_ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "tool_calls": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refused",
}
_SETTINGS = {
    "max_tokens": "max_gen_toks",
    "stop_seqs": "until",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "reasoning_effort": "reasoning_effort",
    "reasoning_tokens": "thinking_budget",
}
_MEDIA = {"image": Image, "audio": Audio, "video": Video}
_DIGEST = re.compile(r"[0-9a-f]{64}(-\d{1,4})?")
_SCORER_SPANS = ("scorers", "scorer")


@dataclass(slots=True)
class RequestReader:
    """Collects the requests of one document from its samples."""

    task: str
    document: int
    is_own: bool = False
    """Whether Assay wrote the log: its metadata state whether a prompt was one text, or messages without a chat template."""

    requests: list[Request] = field(default_factory=list)
    outcomes: list[Response | Failure | None] = field(default_factory=list)
    media: dict[str, bytes] = field(default_factory=dict)
    """By digest."""

    _attachments: Mapping[str, str] = field(default_factory=dict)
    _chat: bool | None = True
    """Whether a chat template was applied; None if the prompt was one text."""

    def add_sample(self, sample: Mapping[str, Any], repeat: int) -> None:
        """Add the model calls of one epoch; a log without events has the last message of the conversation only."""
        self._attachments = sample.get("attachments") or {}
        own = ((sample.get("metadata") or {}).get("assay") or {}) if self.is_own else {}
        self._chat = own.get("chat") if self.is_own else True
        if own.get("likelihoods"):
            self._add_likelihoods(sample, own["likelihoods"], repeat)
            return
        calls = list(_list_model_events(sample))
        for number, event in enumerate(calls):
            self._add_event(sample, event, repeat, number)
        if not calls:
            self._add_conversation(sample, repeat)

    def _add_likelihoods(
        self, sample: Mapping[str, Any], likelihoods: Sequence[Mapping[str, Any]], repeat: int
    ) -> None:
        for index, one in enumerate(likelihoods):
            prompt = self._read_prompt(_list_input_messages(one.get("input", sample.get("input"))))
            place: dict[str, Any] = {
                "task": self.task,
                "document": self.document,
                "index": index,
                "repeat": repeat,
            }
            request = (
                Likelihood(**place, prompt=prompt, continuation=str(one["continuation"]))
                if "continuation" in one
                else RollingLikelihood(**place, prompt=prompt)
            )
            total = parse_number(one.get("logprob"))
            self.requests.append(request)
            value = None if total is None else LogProbability(total, bool(one.get("greedy")))
            self.outcomes.append(None if value is None else Response(request_id=request.id, value=value))

    def _add_event(
        self, sample: Mapping[str, Any], event: Mapping[str, Any], repeat: int, number: int
    ) -> None:
        messages = _resolve_input(sample, event)
        request = Generate(
            task=self.task,
            document=self.document,
            index=number,
            round=number,
            repeat=repeat,
            prompt=self._read_prompt(messages),
            settings=Settings(_read_settings(event.get("config") or {})),
            tools=_read_tools(event),
        )
        self.requests.append(request)
        self.outcomes.append(self._read_outcome(request, event.get("output") or {}, event.get("error")))

    def _add_conversation(self, sample: Mapping[str, Any], repeat: int) -> None:
        messages = list(sample.get("messages") or ())
        last = max((at for at, one in enumerate(messages) if one.get("role") == "assistant"), default=None)
        asked = messages if last is None else messages[:last]
        asked = asked or _list_input_messages(sample.get("input"))
        request = Generate(
            task=self.task,
            document=self.document,
            repeat=repeat,
            prompt=self._read_prompt(asked),
            settings=Settings({}),
        )
        output = dict(sample.get("output") or {})
        usages = list((sample.get("model_usage") or {}).values())
        if len(usages) == 1:
            output.setdefault("usage", usages[0])
        self.requests.append(request)
        error = (sample.get("error") or {}).get("message") if not output.get("choices") else None
        self.outcomes.append(self._read_outcome(request, output, error))

    def _read_outcome(
        self, request: Request, output: Mapping[str, Any], error: Any
    ) -> Response | Failure | None:
        choices = output.get("choices") or ()
        if not choices:
            why = str(error or output.get("error") or "")
            return Failure(request_id=request.id, kind="model error", message=why) if why else None
        message = choices[0].get("message") or {}
        text, reasoning = self._read_reply(message.get("content"))
        return Response(
            request_id=request.id,
            value=text,
            finish=_FINISHES.get(str(choices[0].get("stop_reason")), ""),
            usage=_read_usage(output.get("usage")),
            seconds=parse_number(output.get("time")),
            reasoning=reasoning or None,
            tool_calls=tuple(_read_call(call) for call in message.get("tool_calls") or ()),
        )

    def _read_reply(self, content: Any) -> tuple[str, str]:
        """Return the text and the reasoning of a message."""
        if not isinstance(content, list):
            return self._resolve(content), ""
        texts = [self._resolve(part.get("text")) for part in content if part.get("type") == "text"]
        thoughts = [
            self._resolve(part.get("reasoning")) for part in content if part.get("type") == "reasoning"
        ]
        return "".join(texts), "\n".join(thoughts)

    def _read_prompt(self, messages: Sequence[Mapping[str, Any]]) -> Prompt:
        chat = len(messages) > 1 if self._chat is None else self._chat
        return Prompt(tuple(self._read_message(message) for message in messages), chat=chat)

    def _read_message(self, message: Mapping[str, Any]) -> Message:
        role: Role = next((one for one in _ROLES if one == message.get("role")), "user")
        content = message.get("content")
        if role == "tool":
            text, _ = self._read_reply(content)
            failed = message.get("error") or {}
            shown = text or str(failed.get("message") or "")
            call_id, name = str(message.get("tool_call_id") or ""), str(message.get("function") or "")
            return Message(role, (ToolResult(shown, call_id, name),))
        parts: list[Part] = []
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            parts += self._read_part(part)
        parts += [_read_call(call) for call in message.get("tool_calls") or ()]
        return Message(role, tuple(parts))

    def _read_part(self, part: Mapping[str, Any]) -> Iterator[Part]:
        kind = str(part.get("type"))
        if kind == "text":
            yield Text(self._resolve(part.get("text")))
        elif kind == "reasoning":
            return  # reasoning of earlier turns is part of their responses
        elif kind in _MEDIA:
            address = self._resolve(part.get(kind))
            data = _decode_data_address(address)
            digest = hashlib.sha256(data or address.encode("utf-8", "surrogatepass")).hexdigest()
            source = "" if data else address[:500]
            stated = (part.get("internal") or {}) if self.is_own else {}
            if _DIGEST.fullmatch(
                str(stated.get("digest"))
            ):  # of the decoded medium, which identifies the prompt
                digest, source = str(stated["digest"]), str(stated.get("source") or "")
            if data:
                self.media[digest] = data
            yield _MEDIA[kind](digest=digest, load=lambda: data, source=source)
        else:
            yield Text(f"[{kind}]")

    def _resolve(self, value: Any) -> str:
        """Return a text; a reference to an attachment as its content."""
        text = (
            value
            if isinstance(value, str)
            else ""
            if value is None
            else json.dumps(value, ensure_ascii=False)
        )
        if text.startswith(_ATTACHMENT):
            return str(self._attachments.get(text.removeprefix(_ATTACHMENT), text))
        return text


def _list_input_messages(given: Any) -> list[Mapping[str, Any]]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())


def _list_model_events(sample: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the calls of the evaluated model, without those of scorers and of models in other roles."""
    spans: dict[Any, tuple[Any, str]] = {}
    for event in sample.get("events") or ():
        if event.get("event") == "span_begin":
            spans[event.get("id")] = (event.get("parent_id"), str(event.get("type") or ""))
        elif event.get("event") != "model" or event.get("role") or event.get("pending"):
            continue
        elif not _is_in_scorer(event.get("span_id"), spans):
            yield event


def _is_in_scorer(span: Any, spans: Mapping[Any, tuple[Any, str]]) -> bool:
    seen = set()
    while span in spans and span not in seen:
        seen.add(span)
        span, kind = spans[span]
        if kind in _SCORER_SPANS:
            return True
    return False


def _resolve_input(sample: Mapping[str, Any], event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages of a call, which can refer to a pool of messages of the sample."""
    given = list(event.get("input") or ())
    pool = (sample.get("events_data") or {}).get("messages") or ()
    for begin, end in event.get("input_refs") or ():
        given += pool[begin:end]
    return given


def _read_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {own: config[key] for key, own in _SETTINGS.items() if config.get(key) is not None}


def _read_tools(event: Mapping[str, Any]) -> Tools | None:
    listed = event.get("tools") or ()
    if not listed:
        return None
    choice = event.get("tool_choice")
    chosen = choice.get("name") if isinstance(choice, dict) else {"any": "required"}.get(str(choice), choice)
    return Tools(
        tools=tuple(
            Tool(str(one.get("name") or ""), str(one.get("description") or ""), one.get("parameters") or {})
            for one in listed
        ),
        choice=str(chosen or "auto"),
    )


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(str(call.get("function") or ""), text, str(call.get("id") or ""))


def _read_usage(usage: Any) -> Usage | None:
    """Return a usage; cached tokens are input tokens here."""
    if not isinstance(usage, Mapping):
        return None
    keys = (
        "input_tokens",
        "output_tokens",
        "input_tokens_cache_read",
        "input_tokens_cache_write",
        "reasoning_tokens",
    )
    read, written, cached, stored, reasoning = (int(usage.get(key) or 0) for key in keys)
    return Usage(
        input_tokens=read + cached + stored,
        output_tokens=written,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        cost_usd=parse_number(usage.get("total_cost")),
    )


def _decode_data_address(address: str) -> bytes:
    """Return the content of a `data:` address; empty for other addresses."""
    head, comma, content = address.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        return b""
    try:
        return base64.b64decode(content, validate=True)
    except (ValueError, binascii.Error):
        return b""
