"""`gemini` against a service that answers as `generateContent` is documented to."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.models.hosted.services import KEY, Gemini, serving
from tests.models.remote.asking import ask, chat, generate

from assay.core.errors import InvalidOption, UserError
from assay.core.records.messages import Message, Prompt, Text, Video
from assay.core.records.responses import Failure, Usage
from assay.models import make_model
from assay.models.hosted.gemini import GeminiModel
from assay.tasks.prompts.media_parts import to_audio_part


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gemini]:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    with serving(Gemini()) as running:
        yield running


def one(service: Gemini, request: Any, **arguments: Any) -> Any:
    given = {
        "model": "gemini-2.5-flash",
        "base_url": service.url + "/v1beta",
        "retry_backoff_s": 0.01,
        **arguments,
    }
    return ask(GeminiModel(**given), [request])[request.id]


PATH = "/v1beta/models/gemini-2.5-flash:generateContent"


def test_payload_and_reply(service: Gemini) -> None:
    request = generate(chat("What is 2 + 2?", system="Be brief."), until=["\n", "Q:"], top_p=0.9)
    outcome = one(service, request)
    ((call,),) = [service.asked(PATH)]
    assert call["contents"] == [{"role": "user", "parts": [{"text": "What is 2 + 2?"}]}]
    assert call["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert call["generationConfig"] == {
        "temperature": 0.0, "maxOutputTokens": 12, "stopSequences": ["\n", "Q:"], "topP": 0.9, "seed": 1234,
    }  # fmt: skip
    assert {setting["threshold"] for setting in call["safetySettings"]} == {"BLOCK_NONE"}
    assert (outcome.value, outcome.finish) == ("4", "stop")
    assert outcome.usage == Usage(30, 10, cached_tokens=10, reasoning_tokens=outcome.usage.reasoning_tokens)
    assert outcome.usage.reasoning_tokens > 0


def test_every_request_gets_its_own_answer(service: Gemini) -> None:
    requests = [generate(f"What is {n} + 1?", document=n) for n in range(30)]
    model = GeminiModel(model="gemini-2.5-flash", base_url=service.url + "/v1beta")
    found = ask(model, requests)
    assert [found[request.id].value for request in requests] == [str(n + 1) for n in range(30)]  # type: ignore[union-attr]


def test_images_and_audio_are_sent_inline(service: Gemini) -> None:
    sound = to_audio_part({"array": np.zeros(1600, dtype=np.float32), "sampling_rate": 16_000})
    picture = chat("What is 1 + 1?", picture=Image.new("RGB", (8, 6), "red"))
    prompt = Prompt((Message("user", (sound, *picture.messages[0].parts)),), chat=True)
    assert one(service, generate(prompt)).value == "2"
    ((call,),) = [service.asked(PATH)]
    kinds = [part["inlineData"]["mimeType"] for part in call["contents"][0]["parts"] if "inlineData" in part]
    assert kinds == ["audio/wav", "image/png"]


def test_a_video_is_sent_as_a_file_with_its_time_range(service: Gemini, tmp_path: Path) -> None:
    file = tmp_path / "clip.mp4"
    file.write_bytes(b"\0\0\0\x18ftypmp42" + b"\0" * 100)
    video = Video(digest="d", load=lambda: str(file), start_s=1.5, end_s=4.0)
    prompt = Prompt((Message("user", (video, Text("What is 1 + 1?"))),), chat=True)
    assert one(service, generate(prompt)).value == "2"
    ((call,),) = [service.asked(PATH)]
    part = call["contents"][0]["parts"][0]
    assert part["inlineData"]["mimeType"] == "video/mp4"
    assert base64.b64decode(part["inlineData"]["data"]) == file.read_bytes()
    assert part["videoMetadata"] == {"startOffset": "1.5s", "endOffset": "4s"}


def test_frames_are_sent_as_images(service: Gemini) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    video = Video(digest="d", load=lambda: frames)
    prompt = Prompt((Message("user", (video, Text("What is 1 + 1?"))),), chat=True)
    one(service, generate(prompt), max_frames_num=2)
    ((call,),) = [service.asked(PATH)]
    assert [part["inlineData"]["mimeType"] for part in call["contents"][0]["parts"][:2]] == ["image/png"] * 2


def test_thoughts_are_separated_and_counted_as_output(service: Gemini) -> None:
    outcome = one(service, generate("What is 1 + 2?"), thinking_budget=128)
    assert (outcome.value, outcome.reasoning) == ("3", "Adding up.")
    ((call,),) = [service.asked(PATH)]
    assert call["generationConfig"]["maxOutputTokens"] == 140
    assert call["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 128, "includeThoughts": True}


def test_the_thinking_level_is_sent(service: Gemini) -> None:
    assert one(service, generate("What is 1 + 2?"), thinking_level="low").reasoning == "Adding up."
    ((call,),) = [service.asked(PATH)]
    assert call["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "LOW", "includeThoughts": True}


def test_a_blocked_prompt_is_a_refusal(service: Gemini) -> None:
    outcome = one(service, generate("forbidden"))
    assert (outcome.value, outcome.finish) == ("", "refused")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refused"),
        ("RECITATION", "refused"),
    ],
)
def test_finish_reasons_are_mapped(service: Gemini, reason: str, finish: str) -> None:
    content = {"role": "model", "parts": [{"text": "x"}]}
    service.trouble = [(200, {}, {"candidates": [{"content": content, "finishReason": reason}]})]
    assert one(service, generate("Tell me.")).finish == finish


def test_excess_stop_strings_are_applied_locally(service: Gemini) -> None:
    content = {"role": "model", "parts": [{"text": "a b c d e f"}]}
    service.trouble = [(200, {}, {"candidates": [{"content": content, "finishReason": "STOP"}]})]
    outcome = one(service, generate("Tell me.", until=["1", "2", "3", "4", "5", "f"]))
    assert outcome.value == "a b c d e "
    assert len(service.asked(PATH)[0]["generationConfig"]["stopSequences"]) == 5


def test_the_retry_delay_in_the_body_is_honoured(service: Gemini) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.2s"}]
    error = {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED", "details": details}
    service.trouble = [
        (429, {}, {"error": error}),
        (503, {}, {"error": {"code": 503, "message": "overloaded"}}),
    ]
    began = time.monotonic()
    assert one(service, generate("What is 1 + 1?")).value == "2"
    assert time.monotonic() - began >= 1.2


def test_an_exhausted_daily_quota_stops_the_run(service: Gemini) -> None:
    violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
    details = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}]
    error = {"code": 429, "message": "You exceeded your current quota", "details": details}
    service.trouble = [(429, {}, {"error": error})]
    with pytest.raises(UserError, match="no credit left"):
        one(service, generate("What is 1 + 1?"))


def test_a_reply_without_an_answer_is_retried(service: Gemini) -> None:
    service.trouble = [(200, {}, {"candidates": []}), (200, {}, {"candidates": [{"finishReason": "OTHER"}]})]
    assert one(service, generate("What is 1 + 1?")).value == "2"
    assert len(service.calls) == 3


def test_a_wrong_key_stops_the_run_and_is_not_repeated(
    service: Gemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-wrong-key-1234")
    with pytest.raises(UserError, match="authentication failed") as caught:
        one(service, generate("What is 1 + 1?"))
    assert "AIza-wrong-key-1234" not in str(caught.value)


def test_a_bad_request_is_not_retried(service: Gemini) -> None:
    service.trouble = [(400, {}, {"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}})]
    assert isinstance(one(service, generate("What is 1 + 1?")), Failure)
    assert len(service.calls) == 1


@pytest.mark.parametrize("name", ["gemini", "gemini_api"])
def test_names_of_other_harnesses_are_supported(name: str) -> None:
    made = make_model(
        name, {"model_version": "gemini-2.5-pro", "interleave": False, "adaptive_concurrency": True}
    )
    assert made.name == "gemini-2.5-pro"
    assert {"image", "audio", "video"} < made.traits.abilities


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"model": "x", "api_key": "AIza-12345678"}, "`api_key` is not allowed as an argument"),
        ({"model": "x", "vertexai": True}, "does not support Vertex AI"),
        ({"model": "x", "safety_threshold": "NONE"}, "invalid value for `safety_threshold`"),
        ({"model": "x", "thinking_budget": -2}, "`thinking_budget` must be"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        GeminiModel(**arguments)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"thinking_budget": 100}, {"thinkingBudget": 100, "includeThoughts": True}),
        ({"thinking_budget": 0}, {"thinkingBudget": 0}),
        ({"reasoning_effort": "low"}, {"thinkingLevel": "low", "includeThoughts": True}),
        ({"reasoning_effort": "low", "include_reasoning": False}, {"thinkingLevel": "low"}),
    ],
)
def test_settings_of_reasoning_are_translated(
    service: Gemini, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    one(service, generate(chat("What is 2 + 2?"), **settings))
    assert service.asked(PATH)[-1]["generationConfig"]["thinkingConfig"] == expected
