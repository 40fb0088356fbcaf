"""Finish reasons of each protocol: which come with an answer, and which mean that generation failed.

A reason that is not in the table of its protocol is never an answer: the request is retried, then it fails with the name
of the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.records.responses import Finish

__all__ = [
    "GENERATE_CONTENT",
    "LLAMA_CPP",
    "MESSAGES",
    "OPENAI",
    "RESPONSES_INCOMPLETE",
    "RESPONSES_STATUS",
    "VLLM",
    "FinishReasons",
    "GenerationFailed",
    "raise_reported_error",
]

_MAX_MESSAGE_CHARACTERS = 300


class GenerationFailed(Exception):
    """A complete reply reports that generation failed. `transient`: a retry can succeed."""

    def __init__(self, message: str, *, kind: str = "server error", transient: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.transient = transient


@dataclass(frozen=True, slots=True)
class _FailureReason:
    """The meaning of a reason that comes without an answer."""

    kind: str = "server error"
    transient: bool = True


_FAILED = _FailureReason()
_TOO_LONG = _FailureReason("too long", transient=False)
_UNUSABLE = _FailureReason("bad reply")
"""The model generated something that is not an answer, such as an invalid tool call."""


@dataclass(frozen=True, slots=True)
class FinishReasons:
    """The finish reasons of a protocol."""

    field: str
    """The name of the field, for messages."""

    meanings: Mapping[str, Finish | _FailureReason]
    required: bool = False
    """Whether the protocol requires a reason; otherwise a missing one is unknown (empty)."""

    def classify(self, reason: Any) -> Finish:
        """Return why generation ended.

        Raises:
            GenerationFailed: The reason is a failure, unknown, or missing although it is required.
        """
        if reason is None or reason == "":
            if self.required:
                raise GenerationFailed(f"the reply has no `{self.field}`", kind="bad reply")
            return ""
        name = str(reason)
        meaning = self.meanings.get(name)
        if meaning is None:
            meaning = self.meanings.get(name.lower(), _FAILED)
        if isinstance(meaning, str):
            return meaning
        shown = name if len(name) <= 60 else f"{name[:60]}…"
        raise GenerationFailed(
            f'generation ended with {self.field} "{shown}"', kind=meaning.kind, transient=meaning.transient
        )


OPENAI = FinishReasons(
    "finish_reason",
    {
        "stop": "stop",
        "eos": "stop",  # Together
        "eos_token": "stop",  # TGI
        "end_turn": "stop",  # xAI
        "stop_sequence": "stop",  # TGI
        "complete": "stop",  # Cohere
        "completed": "stop",
        "tool_calls": "stop",
        "tool_use": "stop",
        "function_call": "stop",
        "repetition": "stop",  # vLLM: repetition detection
        "length": "length",
        "max_tokens": "length",
        "max_output_tokens": "length",
        "model_length": "length",  # Mistral
        "content_filter": "refused",
        "content_filtered": "refused",  # Bedrock
        "guardrail_intervened": "refused",  # Bedrock
        "refusal": "refused",
        "safety": "refused",
        "error": _FAILED,  # vLLM, Mistral, OpenRouter
        "abort": _FAILED,  # vLLM, SGLang
        "cancelled": _FAILED,
        "timeout": _FAILED,
        "insufficient_system_resource": _FAILED,  # DeepSeek
        "load": _FAILED,  # Ollama: the model was only loaded
        "unload": _FAILED,
        "model_context_window_exceeded": _TOO_LONG,
        "malformed_model_output": _UNUSABLE,  # Bedrock
        "malformed_tool_use": _UNUSABLE,
    },
)
"""Chat and text completions of OpenAI and of servers with its protocol."""

RESPONSES_STATUS = FinishReasons(
    "status",
    {
        "completed": "stop",
        "failed": _FAILED,
        "cancelled": _FAILED,
        "in_progress": _FAILED,
        "queued": _FAILED,
        "incomplete": _FAILED,
    },
)
"""The responses API. `incomplete` has a reason of its own (`RESPONSES_INCOMPLETE`)."""

RESPONSES_INCOMPLETE = FinishReasons(
    "incomplete_details.reason",
    {"max_output_tokens": "length", "max_tokens": "length", "length": "length", "content_filter": "refused"},
    required=True,
)

MESSAGES = FinishReasons(
    "stop_reason",
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "stop",
        "max_tokens": "length",
        "refusal": "refused",
        "model_context_window_exceeded": _TOO_LONG,
        "pause_turn": _FAILED,
        "compaction": _FAILED,
    },
    required=True,
)
"""Anthropic's Messages API."""

GENERATE_CONTENT = FinishReasons(
    "finishReason",
    {
        "STOP": "stop",
        "MAX_TOKENS": "length",
        "SAFETY": "refused",
        "RECITATION": "refused",
        "BLOCKLIST": "refused",
        "PROHIBITED_CONTENT": "refused",
        "SPII": "refused",
        "IMAGE_SAFETY": "refused",
        "IMAGE_PROHIBITED_CONTENT": "refused",
        "IMAGE_RECITATION": "refused",
        "MODEL_ARMOR": "refused",
        "FINISH_REASON_UNSPECIFIED": _FAILED,
        "OTHER": _FAILED,
        "IMAGE_OTHER": _FAILED,
        "NO_IMAGE": _FAILED,
        "LANGUAGE": _FailureReason("bad request", transient=False),
        "MALFORMED_FUNCTION_CALL": _UNUSABLE,
        "MALFORMED_RESPONSE": _UNUSABLE,
        "MISSING_THOUGHT_SIGNATURE": _UNUSABLE,
        "UNEXPECTED_TOOL_CALL": _UNUSABLE,
        "TOO_MANY_TOOL_CALLS": _UNUSABLE,
    },
    required=True,
)
"""Gemini's `generateContent`. A reply without a reason is not complete."""

VLLM = FinishReasons(
    "finish_reason",
    {"stop": "stop", "repetition": "stop", "length": "length", "abort": _FAILED, "error": _FAILED},
    required=True,
)
"""The engine of vLLM in this process."""

LLAMA_CPP = FinishReasons("finish_reason", {"stop": "stop", "length": "length"}, required=True)
"""llama.cpp in this process."""


def raise_reported_error(value: Mapping[str, Any], where: str = "") -> None:
    """Raise the error that a reply with a successful status reports in its body, if there is one.

    Raises:
        GenerationFailed: `value` has an `error`.
    """
    error = value.get("error")
    if not error:
        return
    message = error.get("message") or error if isinstance(error, Mapping) else error
    text = " ".join(str(message).split())
    if len(text) > _MAX_MESSAGE_CHARACTERS:
        text = f"{text[:_MAX_MESSAGE_CHARACTERS]}…"
    raise GenerationFailed(f"the server reports an error{where}: {text}")
