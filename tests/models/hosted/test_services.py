"""The local services are compatible with the providers' own packages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.models.hosted.services import KEY, Anthropic, Gemini, OpenAIBatches, serving

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore"),  # of the packages, about their own code
]

CALL: dict[str, Any] = {"model": "some-model", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}


def test_anthropics_package_understands_messages_and_batches() -> None:
    import anthropic

    with serving(Anthropic()) as service, anthropic.Anthropic(base_url=service.url, api_key=KEY) as client:
        message = client.messages.create(**CALL, max_tokens=9)
        assert (message.content[0].text, message.stop_reason, message.usage.input_tokens) == (
            "4",
            "end_turn",
            20,
        )
        batch = client.messages.batches.create(
            requests=[{"custom_id": "one", "params": {**CALL, "max_tokens": 9}}]
        )
        assert client.messages.batches.retrieve(batch.id).processing_status == "ended"
        assert [one.id for one in client.messages.batches.list()] == [batch.id]
        (result,) = client.messages.batches.results(batch.id)
        assert (result.custom_id, result.result.message.content[0].text) == ("one", "4")


def test_openais_package_understands_files_and_batches() -> None:
    import openai

    with (
        serving(OpenAIBatches()) as service,
        openai.OpenAI(base_url=f"{service.url}/v1", api_key=KEY) as client,
    ):
        line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": CALL}
        file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"assay": "key"},
        )
        done = client.batches.retrieve(batch.id)
        assert (done.status, done.metadata) == ("completed", {"assay": "key"})
        found = json.loads(client.files.content(done.output_file_id).text)
        assert found["response"]["body"]["choices"][0]["message"]["content"] == "4"
        assert [one.id for one in client.batches.list()] == [batch.id]


def test_googles_package_understands_contents() -> None:
    from google import genai

    with serving(Gemini()) as service:
        client = genai.Client(api_key=KEY, http_options={"base_url": service.url})
        reply = client.models.generate_content(
            model="gemini-2.5-flash", contents="What is 2 + 2?", config={"stop_sequences": ["x"]}
        )
        client.close()
    assert (reply.text, reply.candidates[0].finish_reason.value) == ("4", "STOP")
    assert reply.usage_metadata.thoughts_token_count == 8
