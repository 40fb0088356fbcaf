"""Documents of a run as samples of an inspect_ai log: one sample per document and repeat (epoch)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.records.codec import to_plain
from assay.core.records.requests import Settings
from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.store.runs.run import Run
from assay.viewer.documents.prompts import parse_stored_messages
from assay.viewer.exports.chat_messages import ChatMessage, read_conversation, read_prompt

__all__ = ["USAGE_KEYS", "SampleBuilder", "build_config", "build_scorer_name", "build_summary", "build_usage"]

USAGE_KEYS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd")
"""The keys of a request that `build_usage` reads."""

_STOP_REASONS = {"stop": "stop", "length": "max_tokens", "refused": "content_filter"}
_MEDIA_FORMATS = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "video/mp4": "mp4",
}
"""The formats of audio and video that a log can contain; images can have any format."""

_REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_SCHEMA_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_SCHEMA_KEYS = ("format", "description", "default", "enum", "pattern")
_MAX_SUMMARY_CHARACTERS = 1_000
_SUMMARY_KEYS = ("id", "epoch", "input", "choices", "target", "scores", "model_usage", "role_usage", "uuid")


def build_scorer_name(metric: str, pipeline: str) -> str:
    """Return the name of a scorer: the metric, with the filter of lm-eval's result keys if there is one.

    >>> build_scorer_name("exact_match", "none"), build_scorer_name("exact_match", "strict-match")
    ('exact_match', 'exact_match,strict-match')
    """
    return metric if pipeline in ("", "none") else f"{metric},{pipeline}"


@dataclass(slots=True)
class SampleBuilder:
    """Builds the samples of one run."""

    run: Run
    model: str
    timestamp: str
    """The time of events. The journal has no time for each request, so it is that of the run."""

    def build_samples(self, task: str, document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a sample per repeat of a document; a document without requests has one."""
        repeats = sorted({request.get("repeat") or 0 for request in document["requests"]}) or [0]
        for repeat in repeats:
            requests = [one for one in document["requests"] if (one.get("repeat") or 0) == repeat]
            yield self._build_sample(task, document, requests, repeat)

    def _build_sample(
        self, task: str, document: Mapping[str, Any], requests: Sequence[Mapping[str, Any]], repeat: int
    ) -> dict[str, Any]:
        attachments = _Attachments(self.run)
        generated = [request for request in requests if request["kind"] == "generate"]
        likelihoods = [request for request in requests if request["kind"] != "generate"]
        choices = _list_choices(likelihoods)
        best = _find_most_likely(choices)
        identity = f"{self.run.id}\0{task}\0{document['document']}\0{repeat}"
        first = read_prompt(requests[0]["prompt"]) if requests else []
        usage = build_usage(requests)
        failed = _has_only_this_repeat_failed(document, repeat)
        sample = {
            "id": document["document"],
            "epoch": repeat + 1,
            "input": _build_input(first, attachments),
            "choices": [text for text, _ in choices] or None,
            "target": _build_target(document["target"], choices),
            "messages": self._build_messages(first, generated, best, attachments),
            "output": self._build_output(generated, best, attachments),
            "scores": {} if failed else _build_scores(document, repeat, best),
            "metadata": {
                **to_plain(document["fields"]),
                "assay": _build_metadata(document, requests, likelihoods, attachments),
            },
            "store": {},
            "events": [self._build_event(request, attachments) for request in generated],
            "model_usage": {self.model: usage} if usage else {},
            "role_usage": {},
            "uuid": hashlib.sha256(identity.encode()).hexdigest()[:22],
            "error": _describe_failure(document) if failed else _build_error(document),
            "attachments": attachments.content,
        }
        return {key: value for key, value in sample.items() if value is not None}

    def _build_messages(
        self,
        first: Sequence[ChatMessage],
        generated: Sequence[Mapping[str, Any]],
        best: str | None,
        attachments: _Attachments,
    ) -> list[dict[str, Any]]:
        """Return the conversation: that of the last request, which contains the earlier rounds."""
        if generated:
            answered = [request for request in generated if request.get("response") is not None]
            chosen = answered[-1] if answered else generated[-1]
            return [_build_message(message, attachments) for message in read_conversation(chosen)]
        messages = [_build_message(message, attachments) for message in first]
        return messages if best is None else [*messages, {"role": "assistant", "content": best}]

    def _build_output(
        self, generated: Sequence[Mapping[str, Any]], best: str | None, attachments: _Attachments
    ) -> dict[str, Any]:
        answered = [request for request in generated if request.get("response") is not None]
        if answered:
            return self._build_model_output(answered[-1], attachments)
        if best is None:
            return {"model": self.model, "choices": [], "completion": ""}
        message = {"role": "assistant", "content": best, "model": self.model}
        choice = {"message": message, "stop_reason": "unknown"}
        return {"model": self.model, "choices": [choice], "completion": best}

    def _build_model_output(self, request: Mapping[str, Any], attachments: _Attachments) -> dict[str, Any]:
        if request.get("response") is None:
            return {"model": self.model, "choices": [], "completion": "", "error": "the request failed"}
        message = _build_message(read_conversation(request)[-1], attachments)
        reason = (
            "tool_calls"
            if request.get("tool_calls")
            else _STOP_REASONS.get(request.get("finish", ""), "unknown")
        )
        usage = build_usage([request])
        return {
            "model": self.model,
            "choices": [{"message": {**message, "model": self.model}, "stop_reason": reason}],
            "completion": request["response"],
            **({"usage": usage} if usage else {}),
        }

    def _build_event(self, request: Mapping[str, Any], attachments: _Attachments) -> dict[str, Any]:
        """Return the event of one model call."""
        tools = request.get("tools") or {}
        return {
            "uuid": hashlib.sha256(str(request["fingerprint"]).encode()).hexdigest()[:22],
            "timestamp": self.timestamp,
            "working_start": 0.0,
            "event": "model",
            "model": self.model,
            "input": [_build_message(message, attachments) for message in read_prompt(request["prompt"])],
            "tools": [_build_tool(tool) for tool in tools.get("tools", ())],
            "tool_choice": _build_tool_choice(str(tools.get("choice") or "auto")) if tools else "none",
            "config": build_config(request.get("settings") or {}),
            "output": self._build_model_output(request, attachments),
        }


@dataclass(slots=True)
class _Attachments:
    """Media of a sample, stored once under a hash."""

    run: Run
    content: dict[str, str] = field(default_factory=dict)

    def add_media(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content part of an image, audio or video; text if the run has no file that a log can contain."""
        kind, digest = str(part.get("type")), str(part.get("digest"))
        path = find_media_file(self.run.folder, digest)
        data = path.read_bytes() if path is not None else b""
        found = detect_content_type(data[:32])
        missing = {"type": "text", "text": f"[{kind}: {part.get('source') or digest}]"}
        if not found or (kind != "image" and found not in _MEDIA_FORMATS):
            return missing
        key = hashlib.sha256(data).hexdigest()[:32]
        self.content[key] = f"data:{found};base64,{base64.b64encode(data).decode()}"
        extra = {} if kind == "image" else {"format": _MEDIA_FORMATS[found]}
        return {
            "type": kind,
            kind: f"attachment://{key}",
            **extra,
            "internal": {"digest": digest, "source": str(part.get("source") or "")},
        }


def _build_input(messages: Sequence[ChatMessage], attachments: _Attachments) -> str | list[dict[str, Any]]:
    if not messages:
        return ""
    if (
        len(messages) == 1
        and messages[0].role == "user"
        and all(one["type"] == "text" for one in messages[0].parts)
    ):
        return messages[0].text
    return [_build_message(message, attachments) for message in messages]


def _build_message(message: ChatMessage, attachments: _Attachments) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if message.reasoning:
        parts.append({"type": "reasoning", "reasoning": message.reasoning})
    for part in message.parts:
        parts.append(dict(part) if part.get("type") == "text" else attachments.add_media(part))
    only_text = len(parts) == 1 and parts[0]["type"] == "text"
    found: dict[str, Any] = {
        "content": parts[0]["text"] if only_text else parts or "",
        "role": message.role if message.role in ("system", "user", "assistant", "tool") else "user",
    }
    if message.calls:
        found["tool_calls"] = [
            {
                "id": call["id"],
                "function": call["name"],
                "arguments": call["arguments"],
                "type": "function",
                **({"parse_error": call["problem"]} if "problem" in call else {}),
            }
            for call in message.calls
        ]
    if message.role == "tool":
        found |= {"tool_call_id": message.call_id, **({"function": message.tool} if message.tool else {})}
    return found


def _build_target(target: Any, choices: Sequence[tuple[str, float | None]]) -> str | list[str]:
    """Return the target as text: that of the choice if the target is the number of one."""
    plain = to_plain(target)
    if isinstance(plain, list):
        return [str(one) for one in plain]
    if isinstance(plain, int) and 0 <= plain < len(choices):
        return choices[plain][0]
    return "" if plain is None else str(plain)


def _list_choices(likelihoods: Sequence[Mapping[str, Any]]) -> list[tuple[str, float | None]]:
    """Return the text and the log probability of each choice, without the requests that score a choice alone.

    If the choices are in the prompts and continuations are equal, the text is both.
    """
    options = [one for one in likelihoods if "continuation" in one]
    options = [one for one in options if one["prompt"]] or options
    texts = [str(one["continuation"]) for one in options]
    if len(set(texts)) == 1 < len(texts):
        texts = [
            "".join(message.text for message in read_prompt(one["prompt"])[-1:]) + text
            for one, text in zip(options, texts, strict=True)
        ]
    return [(text, one.get("logprob")) for one, text in zip(options, texts, strict=True)]


def _find_most_likely(choices: Sequence[tuple[str, float | None]]) -> str | None:
    """Return the choice with the highest log probability; None if there is none."""
    known = [(logprob, text) for text, logprob in choices if logprob is not None]
    return max(known, key=lambda one: one[0])[1] if known else None


def build_usage(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of the usage of some requests; empty if it is unknown. Cached tokens are not input tokens there."""
    known = [request for request in requests if "input_tokens" in request]
    if not known:
        return {}
    read, written, cached, reasoning = (
        sum(request.get(key) or 0 for request in known)
        for key in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    )
    costs = [request["cost_usd"] for request in known if request.get("cost_usd") is not None]
    return {
        "input_tokens": read - cached,
        "output_tokens": written,
        "total_tokens": read + written,
        **({"input_tokens_cache_read": cached} if cached else {}),
        **({"reasoning_tokens": reasoning} if reasoning else {}),
        **({"total_cost": sum(costs)} if costs else {}),
    }


def _build_scores(document: Mapping[str, Any], repeat: int, choice: str | None) -> dict[str, Any]:
    """Return the scores of one repeat; `choice`: the most likely continuation, which is the answer. A score of all repeats together is repeated, so that its mean is the same."""
    own = {
        (one["filter"], metric): values[repeat]
        for one in document.get("repeats", ())
        for metric, values in one["scores"].items()
        if repeat < len(values)
    }
    scores = {}
    for verdict in document["verdicts"]:
        pipeline, metric = verdict["filter"], verdict["metric"]
        answer = choice if choice is not None else _find_answer(document["answers"].get(pipeline), repeat)
        why = verdict.get("why") or ""
        unscored = verdict["kind"] == "unscored"
        value = float("nan") if unscored else own.get((pipeline, metric), verdict["value"])
        scores[build_scorer_name(metric, pipeline)] = {
            "value": _build_value(value),
            **({} if answer is None else {"answer": answer}),
            **({"explanation": why} if why else {}),
            **({"reason": "unscored"} if unscored else {}),
        }
    return scores


def _find_answer(values: Any, repeat: int) -> str | None:
    if not isinstance(values, list) or not values:
        return None
    value = to_plain(values[repeat] if repeat < len(values) else values[0])
    return value if isinstance(value, str) else str(value)


def _build_value(value: Any) -> Any:
    """Return a score as a log can contain it: a scalar, or a list of them. Anything else becomes text."""
    plain = to_plain(value)
    if isinstance(plain, (str, int, float)):
        return plain
    if isinstance(plain, list) and all(isinstance(one, (str, int, float)) for one in plain):
        return plain
    return str(plain)


def _build_metadata(
    document: Mapping[str, Any],
    requests: Sequence[Mapping[str, Any]],
    likelihoods: Sequence[Mapping[str, Any]],
    attachments: _Attachments,
) -> dict[str, Any]:
    """Return what a sample has no field for; `chat`: whether a chat template was applied to the messages."""
    found: dict[str, Any] = {"outcome": document["outcome"]}
    target = to_plain(document["target"])
    if not isinstance(target, str):
        found["target"] = target
    if requests and parse_stored_messages(requests[0]["prompt"]) is not None:
        found["chat"] = requests[0]["prompt"].endswith('"chat": true}')
    if document["why"]:
        found["why"] = document["why"]
    if likelihoods:
        found["likelihoods"] = [
            {
                **{key: one[key] for key in ("continuation", "logprob", "greedy") if key in one},
                **(
                    {"input": _build_input(read_prompt(one["prompt"]), attachments)}
                    if one["prompt"] != requests[0]["prompt"]
                    else {}
                ),
            }
            for one in likelihoods
        ]
    return found


def _has_only_this_repeat_failed(document: Mapping[str, Any], repeat: int) -> bool:
    """Whether a repeat has no response and no score of its own, while the document is scored from its other repeats."""
    if document["outcome"] != "scored" or document.get("repeats"):
        return False
    answered = {
        one.get("repeat") or 0
        for one in document["requests"]
        if one["kind"] != "generate" or one.get("response") is not None
    }
    return bool(answered) and repeat not in answered


def _describe_failure(document: Mapping[str, Any]) -> dict[str, str]:
    message = str(document["why"] or "the request failed")
    return {"message": message, "traceback": message, "traceback_ansi": message}


def _build_error(document: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the error of a document that has no score at all."""
    if document["outcome"] == "scored" or any(one["kind"] != "unscored" for one in document["verdicts"]):
        return None
    message = str(document["why"] or document["outcome"])
    return {"message": message, "traceback": message, "traceback_ansi": message}


def build_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under the names of `GenerateConfig`."""
    settings = Settings(dict(values))
    found: dict[str, Any] = {"max_tokens": settings.max_tokens, "seed": settings.seed}
    if "temperature" in values or "do_sample" in values:
        found["temperature"] = settings.temperature
    if values.get("top_p") is not None:
        found["top_p"] = settings.top_p
    if values.get("top_k"):
        found["top_k"] = settings.top_k
    if settings.stop:
        found["stop_seqs"] = list(settings.stop)
    if settings.reasoning_effort in _REASONING_EFFORTS:
        found["reasoning_effort"] = settings.reasoning_effort
    if settings.thinking_budget is not None:
        found["reasoning_tokens"] = settings.thinking_budget
    return {key: value for key, value in found.items() if value is not None}


def _build_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = _build_schema(tool.get("parameters") or {})
    return {
        "name": str(tool.get("name") or ""),
        "description": str(tool.get("description") or ""),
        "parameters": {
            "type": "object",
            "properties": schema.get("properties", {}),
            "required": schema.get("required", []),
            "additionalProperties": schema.get("additionalProperties", False),
        },
    }


def _build_schema(schema: Any) -> dict[str, Any]:
    """Return the part of a JSON schema that a log can contain."""
    if not isinstance(schema, Mapping):
        return {}
    found = {key: schema[key] for key in _SCHEMA_KEYS if key in schema}
    found = {
        key: value for key, value in found.items() if key in ("default", "enum") or isinstance(value, str)
    }
    kinds = schema.get("type")
    listed = kinds if isinstance(kinds, list) else [kinds]
    known = [one for one in listed if one in _SCHEMA_TYPES]
    if known:
        found["type"] = known if isinstance(kinds, list) else known[0]
    if isinstance(schema.get("items"), Mapping):
        found["items"] = _build_schema(schema["items"])
    if isinstance(schema.get("properties"), Mapping):
        found["properties"] = {str(name): _build_schema(one) for name, one in schema["properties"].items()}
    if isinstance(schema.get("anyOf"), list):
        found["anyOf"] = [_build_schema(one) for one in schema["anyOf"]]
    if isinstance(schema.get("required"), list):
        found["required"] = [str(one) for one in schema["required"]]
    if isinstance(schema.get("additionalProperties"), bool):
        found["additionalProperties"] = schema["additionalProperties"]
    return found


def _build_tool_choice(choice: str) -> Any:
    return {"auto": "auto", "none": "none", "required": "any"}.get(choice, {"name": choice})


def build_summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a sample for lists: long texts shortened, media as placeholders."""
    found = {key: sample[key] for key in _SUMMARY_KEYS if key in sample}
    shown = sample["input"]
    if isinstance(shown, list):
        shown = [{**message, "content": _shorten_content(message.get("content"))} for message in shown]
    metadata = {key: _shorten(value) for key, value in sample["metadata"].items() if _is_short(value)}
    return {
        **found,
        "input": _shorten(shown),
        "target": _shorten(sample["target"]),
        "metadata": metadata,
        **({"error": sample["error"]["message"]} if "error" in sample else {}),
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _shorten_content(content: Any) -> Any:
    if not isinstance(content, list):
        return _shorten(content)
    return "\n".join(
        _shorten(one["text"]) if one["type"] == "text" else f"({one['type']})" for one in content
    )


def _shorten(value: Any) -> Any:
    return value[:_MAX_SUMMARY_CHARACTERS] if isinstance(value, str) else value


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float)) or len(str(value)) < _MAX_SUMMARY_CHARACTERS
