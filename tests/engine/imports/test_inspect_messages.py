"""Model calls of inspect_ai as requests; `test_inspect_log.py` reads whole logs."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from assay.core.records.messages import Audio, Image, Text
from assay.core.records.requests import Generate, Likelihood
from assay.core.records.responses import Failure, LogProbability, Response
from assay.engine.imports.inspect_messages import RequestReader

ANSWER = {"choices": [{"message": {"content": "4", "role": "assistant"}, "stop_reason": "max_tokens"}]}


def read(sample: dict[str, Any], **options: Any) -> RequestReader:
    reader = RequestReader(task="t", document=0, **options)
    reader.add_sample(sample, 0)
    return reader


def build_call(**fields: Any) -> dict[str, Any]:
    return {"event": "model", "input": [{"role": "user", "content": "2 + 2?"}], "output": ANSWER, **fields}


def test_a_call_is_a_request_with_its_settings() -> None:
    config = {"max_tokens": 5, "temperature": 0.5, "stop_seqs": ["."], "top_p": None}
    reader = read({"events": [build_call(config=config)]})
    (request,), (outcome,) = reader.requests, reader.outcomes
    assert isinstance(request, Generate) and isinstance(outcome, Response)
    assert request.prompt.chat and request.settings.values == {
        "max_gen_toks": 5,
        "until": ["."],
        "temperature": 0.5,
    }
    assert (outcome.value, outcome.finish) == ("4", "length")


def test_messages_of_the_pool_are_part_of_the_input() -> None:
    pool = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2 + 2?"}]
    sample = {"events": [build_call(input=[], input_refs=[[0, 2]])], "events_data": {"messages": pool}}
    (request,) = read(sample).requests
    assert [message.role for message in request.prompt.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("choice", "expected"), [("any", "required"), ("none", "none"), ({"name": "add"}, "add"), (None, "auto")]
)
def test_tool_choices_have_the_names_of_assay(choice: Any, expected: str) -> None:
    (request,) = read({"events": [build_call(tools=[{"name": "add"}], tool_choice=choice)]}).requests
    assert isinstance(request, Generate) and request.tools is not None
    assert (request.tools.choice, request.tools.names) == (expected, ("add",))


def test_a_call_with_an_error_has_failed() -> None:
    (outcome,) = read({"events": [build_call(output={"choices": []}, error="rate limit")]}).outcomes
    assert isinstance(outcome, Failure) and outcome.message == "rate limit"


def test_media_are_decoded_and_other_addresses_are_kept() -> None:
    address = "data:audio/wav;base64," + base64.b64encode(b"RIFF").decode()
    content = [
        {"type": "audio", "audio": "attachment://a1", "format": "wav"},
        {"type": "image", "image": "https://example.org/a.png"},
        {"type": "image", "image": "data:image/png;base64,###"},
        {"type": "document", "document": "x"},
    ]
    sample = {
        "events": [build_call(input=[{"role": "user", "content": content}])],
        "attachments": {"a1": address},
    }
    reader = read(sample)
    audio, image, broken, other = reader.requests[0].prompt.messages[0].parts
    assert isinstance(audio, Audio) and reader.media == {audio.digest: b"RIFF"}
    assert isinstance(image, Image) and image.source == "https://example.org/a.png"
    assert isinstance(broken, Image) and isinstance(other, Text) and other.text == "[document]"


def test_likelihoods_of_assay_are_requests_again() -> None:
    likelihoods = [
        {"continuation": " no", "logprob": -1.5, "greedy": True},
        {"continuation": " yes", "logprob": None},
    ]
    sample = {"input": "Even?", "metadata": {"assay": {"likelihoods": likelihoods}}}
    reader = read(sample, is_own=True)
    first, second = reader.requests
    assert isinstance(first, Likelihood) and first.prompt.plain == "Even?" and second.index == 1
    (outcome, missing) = reader.outcomes
    assert isinstance(outcome, Response) and outcome.value == LogProbability(-1.5, True) and missing is None
    (foreign,) = read(sample).requests
    assert isinstance(foreign, Generate), "metadata of other programs are not trusted"
