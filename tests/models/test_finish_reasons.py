"""Every documented finish reason of every protocol, and unknown ones: only some come with an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from assay.models.batches.anthropic import parse_result as parse_anthropic_line
from assay.models.batches.openai import parse_result as parse_openai_line
from assay.models.batches.service import LineError
from assay.models.finish_reasons import (
    GENERATE_CONTENT,
    LLAMA_CPP,
    MESSAGES,
    OPENAI,
    RESPONSES_INCOMPLETE,
    RESPONSES_STATUS,
    VLLM,
    FinishReasons,
    GenerationFailed,
)
from assay.models.hosted.anthropic import parse_message
from assay.models.hosted.gemini import parse_content
from assay.models.remote.completions import parse_text_reply
from assay.models.remote.errors import BadReply
from assay.models.remote.protocol.chat import parse_chat_reply
from assay.models.remote.protocol.prompt_logprobs import ScoringPrompt, parse_scores
from assay.models.remote.protocol.responses_api import parse_responses_reply

Reply = dict[str, Any]

DOCUMENTED: Mapping[str, tuple[FinishReasons, str]] = {
    "chat completions": (OPENAI, "stop length tool_calls content_filter function_call"),
    "vLLM server": (OPENAI, "stop length abort error tool_calls repetition"),
    "SGLang": (OPENAI, "stop length abort tool_calls"),
    "TGI": (OPENAI, "length eos_token stop_sequence"),
    "Mistral": (OPENAI, "stop length model_length error tool_calls"),
    "DeepSeek": (OPENAI, "stop length content_filter tool_calls insufficient_system_resource"),
    "OpenRouter": (OPENAI, "tool_calls stop length content_filter error"),
    "responses API": (RESPONSES_STATUS, "completed failed in_progress cancelled queued incomplete"),
    "responses API, incomplete": (RESPONSES_INCOMPLETE, "max_output_tokens content_filter"),
    "Messages API": (
        MESSAGES,
        "end_turn max_tokens stop_sequence tool_use pause_turn refusal model_context_window_exceeded",
    ),
    "generateContent": (
        GENERATE_CONTENT,
        "FINISH_REASON_UNSPECIFIED STOP MAX_TOKENS SAFETY RECITATION LANGUAGE OTHER BLOCKLIST PROHIBITED_CONTENT SPII"
        " MALFORMED_FUNCTION_CALL IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_OTHER NO_IMAGE IMAGE_RECITATION"
        " UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE",
    ),
    "vLLM engine": (VLLM, "stop length abort error repetition"),
    "llama.cpp": (LLAMA_CPP, "stop length"),
}


@pytest.mark.parametrize("protocol", sorted(DOCUMENTED))
def test_every_documented_reason_is_in_the_table(protocol: str) -> None:
    reasons, names = DOCUMENTED[protocol]
    assert not set(names.split()) - reasons.meanings.keys()


@pytest.mark.parametrize("protocol", sorted(DOCUMENTED))
@pytest.mark.parametrize("reason", ["brand_new", "STOPPED", 7, {"type": "stop"}, ["stop"]])
def test_an_unknown_reason_fails_with_its_name(protocol: str, reason: Any) -> None:
    with pytest.raises(GenerationFailed, match=r"brand_new|STOPPED|7|type|stop"):
        DOCUMENTED[protocol][0].classify(reason)


def chat(reason: Any, **more: Any) -> Reply:
    return {"choices": [{"message": {"content": "4"}, "finish_reason": reason, **more}]}


def text(reason: Any, **more: Any) -> Reply:
    return {"choices": [{"text": "4", "finish_reason": reason, **more}]}


def responses(status: Any, **more: Any) -> Reply:
    content = [{"type": "output_text", "text": "4"}]
    return {"status": status, "output": [{"type": "message", "content": content}], **more}


def message(reason: Any, **more: Any) -> Reply:
    return {"type": "message", "content": [{"type": "text", "text": "4"}], "stop_reason": reason, **more}


def content(reason: Any, **more: Any) -> Reply:
    return {"candidates": [{"content": {"parts": [{"text": "4"}]}, "finishReason": reason}], **more}


def scores(reason: Any, **more: Any) -> Reply:
    given = {"token_logprobs": [-1.0, -2.0], "top_logprobs": [{"a": -1.0}, {"b": -2.0}]}
    return {"choices": [{"logprobs": given, "finish_reason": reason, "index": 0, **more}]}


def read_scores(value: Reply) -> Any:
    return parse_scores([ScoringPrompt([1, 2], 0)], value)


ERROR = {"message": "the engine died", "code": 500}
FAILED: list[tuple[str, Callable[[Reply], Any], Reply]] = [
    ("chat error", parse_chat_reply, chat("error")),
    ("chat abort", parse_chat_reply, chat("abort")),
    ("chat unknown", parse_chat_reply, chat("brand_new")),
    ("chat choice error", parse_chat_reply, chat("stop", error=ERROR)),
    ("chat error beside choices", parse_chat_reply, {**chat("stop"), "error": ERROR}),
    ("chat error text", parse_chat_reply, {**chat("stop"), "error": "the engine died"}),
    ("chat error alone", parse_chat_reply, {"error": ERROR}),
    (
        "chat second choice",
        parse_chat_reply,
        {"choices": [*chat("stop")["choices"], *chat("error")["choices"]]},
    ),
    ("text error", parse_text_reply, text("error")),
    ("text abort", parse_text_reply, text("abort")),
    ("text choice error", parse_text_reply, text("stop", error=ERROR)),
    ("text error beside choices", parse_text_reply, {**text("stop"), "error": ERROR}),
    ("scores abort", read_scores, scores("abort")),
    ("scores choice error", read_scores, scores("length", error=ERROR)),
    ("scores error beside choices", read_scores, {**scores("length"), "error": ERROR}),
    ("responses failed", parse_responses_reply, responses("failed", error=None)),
    ("responses cancelled", parse_responses_reply, responses("cancelled", error=None)),
    ("responses incomplete", parse_responses_reply, responses("incomplete", error=None)),
    ("responses in progress", parse_responses_reply, responses("in_progress")),
    (
        "responses incomplete for a new reason",
        parse_responses_reply,
        responses("incomplete", incomplete_details={"reason": "brand_new"}),
    ),
    ("responses error", parse_responses_reply, responses("completed", error=ERROR)),
    ("messages context window", parse_message, message("model_context_window_exceeded")),
    ("messages paused", parse_message, message("pause_turn")),
    ("messages without reason", parse_message, message(None)),
    ("messages error", parse_message, {"type": "error", "error": ERROR}),
    ("gemini other", parse_content, content("OTHER")),
    ("gemini function call", parse_content, content("MALFORMED_FUNCTION_CALL")),
    ("gemini without reason", parse_content, content(None)),
    ("gemini error", parse_content, {**content("STOP"), "error": ERROR}),
]


@pytest.mark.parametrize(
    ("parse", "reply"), [pytest.param(parse, reply, id=name) for name, parse, reply in FAILED]
)
def test_a_failed_generation_is_no_answer(parse: Callable[[Reply], Any], reply: Reply) -> None:
    with pytest.raises(GenerationFailed):
        parse(reply)


@pytest.mark.parametrize(
    ("parse", "reply", "finish"),
    [
        (parse_chat_reply, chat("length"), "length"),
        (parse_chat_reply, chat("STOP"), "stop"),
        (parse_chat_reply, chat(None), ""),
        (parse_responses_reply, responses("completed"), "stop"),
        (
            parse_responses_reply,
            responses("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
        ),
        (parse_message, message("max_tokens"), "length"),
        (parse_content, content("RECITATION"), "refused"),
    ],
)
def test_other_reasons_come_with_an_answer(parse: Callable[[Reply], Any], reply: Reply, finish: str) -> None:
    (choice,) = parse(reply).choices
    assert (choice.text, choice.finish) == ("4", finish)


@pytest.mark.parametrize(
    ("parse", "reply"),
    [
        (parse_chat_reply, {"choices": [{"message": {"content": ""}, "finish_reason": None}]}),
        (parse_text_reply, {"choices": [{"text": "", "finish_reason": None}]}),
        (parse_responses_reply, {"output": [{"type": "message", "content": []}]}),
    ],
)
def test_an_empty_text_without_a_reason_is_no_answer(parse: Callable[[Reply], Any], reply: Reply) -> None:
    with pytest.raises(BadReply, match="neither text nor"):
        parse(reply)


def test_a_retry_cannot_help_if_the_context_window_is_full() -> None:
    with pytest.raises(GenerationFailed) as caught:
        MESSAGES.classify("model_context_window_exceeded")
    assert (caught.value.kind, caught.value.transient) == ("too long", False)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.5, -1e308])
def test_impossible_log_probabilities_of_a_server_are_no_scores(value: float) -> None:
    reply = scores("length")
    reply["choices"][0]["logprobs"]["token_logprobs"][1] = value
    with pytest.raises(BadReply, match="invalid log-probability"):
        read_scores(reply)
    listed = [None, {"2": {"logprob": value}}]
    with pytest.raises(BadReply, match="invalid log-probability"):
        parse_scores([ScoringPrompt([1, 2], 1)], {"choices": [{"prompt_logprobs": listed, "index": 0}]})


def test_failed_lines_of_batches_are_failures() -> None:
    line = {"custom_id": "a", "response": {"status_code": 200, "body": chat("abort")}}
    assert parse_openai_line(line) == LineError("server error", 'generation ended with finish_reason "abort"')
    result = {"type": "succeeded", "message": message("model_context_window_exceeded")}
    assert parse_anthropic_line(result) == LineError(
        "too long", 'generation ended with stop_reason "model_context_window_exceeded"'
    )
