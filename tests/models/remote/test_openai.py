"""`openai` against a server with the embedded model: the same answers, and only probed capabilities."""

from __future__ import annotations

import asyncio
import base64
import resource
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pictures
from tests.models.remote.asking import ask, chat, generate
from tests.models.remote.embedded_server import ALL, EmbeddedServer, serving
from tests.models.remote.scripted_server import Act, ReceivedRequest, replying, start_scripted_server

from assay.core.errors import InvalidOption, MediaError, UserError
from assay.core.records.requests import Likelihood
from assay.core.records.responses import Failure, Response
from assay.models import MODELS, make_model
from assay.models.embedded.adapter import EmbeddedModel
from assay.models.remote.openai import OpenAIModel
from assay.models.remote.options import Options


def make_openai_model(server: EmbeddedServer, **arguments: Any) -> OpenAIModel:
    return OpenAIModel(model="embedded", base_url=server.url, **arguments)


def questions() -> list[Any]:
    red, blue = (Pictures.new("RGB", (48, 48), color) for color in ((200, 30, 30), (20, 40, 220)))
    texts = [generate(f"What is {n} + {n + 1}?", document=n) for n in range(12)]
    return [
        *texts,
        generate(chat("What is 2 + 3?", system="Be brief."), document=20),
        generate(chat("What color is it?", picture=red), document=21),
        generate(chat("What color is it?", picture=blue), document=22),
        generate("Count from 1.", document=23, max_gen_toks=1, until=[]),
    ]


def test_answers_are_those_of_the_model_itself(server: EmbeddedServer) -> None:
    requests = questions()
    there, here = ask(make_openai_model(server), requests), ask(EmbeddedModel(), requests)
    for request in requests:
        told, own = there[request.id], here[request.id]
        assert isinstance(told, Response) and isinstance(own, Response)
        assert (told.value, told.finish, told.usage) == (own.value, own.finish, own.usage)


def test_the_responses_api_gives_the_same_answers(server: EmbeddedServer) -> None:
    requests = questions()
    there, here = ask(make_openai_model(server, api="responses"), requests), ask(EmbeddedModel(), requests)
    for request in requests:
        told, own = there[request.id], here[request.id]
        assert isinstance(told, Response) and isinstance(own, Response), told
        assert told.value == own.value
    (short,) = [there[request.id] for request in requests if request.document == 23]
    assert isinstance(short, Response) and short.finish == "length"


def test_the_model_name_of_the_server_is_recorded(server: EmbeddedServer) -> None:
    model = make_openai_model(server)
    (response,) = ask(model, [generate("What is 1 + 1?")]).values()
    assert isinstance(response, Response) and response.served == "embedded-of-the-server (fp-1)"
    assert model.seen["model"] == "embedded-of-the-server"
    assert model.seen["system_fingerprint"] == "fp-1"


def test_a_server_is_probed_once_a_day(server: EmbeddedServer) -> None:
    before = server.calls["/v1/chat/completions"]
    first = make_openai_model(server)
    assert asyncio.run(first.probe()) == []
    tried = server.calls["/v1/chat/completions"] - before
    assert 3 <= tried <= 6
    assert {"generates", "images", "n", "logprobs"} <= first.seen.keys()
    second = make_openai_model(server)
    asyncio.run(second.probe())
    sent = {name: count for name, count in first.seen.items() if name.startswith("probe_")}
    assert sent.keys() == {"probe_calls", "probe_input_tokens", "probe_output_tokens"}
    assert sent["probe_calls"] == tried
    assert {**second.seen, **sent} == first.seen, "nothing was sent the second time"
    assert server.calls["/v1/chat/completions"] - before == tried


def test_only_probed_capabilities_count() -> None:
    with serving(knows=frozenset({"stop"})) as poor:
        model = make_openai_model(poor)
        asyncio.run(model.probe())
        seen = dict(model.seen)
        assert not {"images", "n", "logprobs", "audio"} & seen.keys()
        assert not {"image", "video", "audio"} & model.traits.abilities
        repeats = [generate("Draw", repeat=n, do_sample=True, temperature=1.0) for n in range(4)]
        before = poor.calls["/v1/chat/completions"]
        assert len(ask(model, repeats)) == 4
        assert poor.calls["/v1/chat/completions"] - before == 4, "each on its own"


def test_repeats_are_sampled_in_one_call_if_the_server_supports_it() -> None:
    with serving() as served:
        model = make_openai_model(served)
        asyncio.run(model.probe())
        before = served.calls["/v1/chat/completions"]
        repeats = [generate("Draw", repeat=n, do_sample=True, temperature=2.0) for n in range(6)]
        found = ask(model, repeats)
        assert served.calls["/v1/chat/completions"] - before == 1
        texts = [found[request.id] for request in repeats]
        assert all(isinstance(one, Response) for one in texts)
        assert len({one.value for one in texts if isinstance(one, Response)}) > 1
        assert sum(one.usage.input_tokens for one in texts if isinstance(one, Response) and one.usage) > 0


def test_repeats_have_different_seeds(server: EmbeddedServer) -> None:
    model = make_openai_model(server, probe=False, seed=5)
    ask(model, [generate("Draw", repeat=n, do_sample=True, temperature=1.0) for n in range(3)])
    assert sorted(payload["seed"] for payload in server.payloads[-3:]) == [5, 6, 7]


def test_stop_strings_the_server_ignores_are_applied_locally() -> None:
    requests = [
        generate(f"What is {n} + {n}?", document=n, until=["1", "\n", "a", "e", "o"]) for n in range(8)
    ]
    with serving(knows=ALL - {"stop"}) as deaf:
        there = ask(make_openai_model(deaf), requests)
    here = ask(EmbeddedModel(), requests)
    for request in requests:
        told, own = there[request.id], here[request.id]
        assert isinstance(told, Response) and isinstance(own, Response)
        assert told.value == own.value


def test_at_most_four_stop_strings_are_sent(server: EmbeddedServer) -> None:
    ask(
        make_openai_model(server, probe=False, eos_string="</s>"),
        [generate("Hi", until=["a", "", "b", "c", "d", "e"])],
    )
    assert server.payloads[-1]["stop"] == ["a", "b", "c", "d"]


def test_likelihoods_are_refused_with_a_hint(server: EmbeddedServer) -> None:
    request = Likelihood(task="t", document=0, prompt=chat("The sky is"), continuation=" blue")
    outcome = ask(make_openai_model(server), [request])[request.id]
    assert isinstance(outcome, Failure) and "openai-completions" in outcome.message


def _send_requests(script: Any, requests: Any, **arguments: Any) -> tuple[Any, Any]:
    async def go() -> tuple[Any, Any]:
        async with start_scripted_server(script) as server:
            model = OpenAIModel(model="m", base_url=f"{server.url}/v1", **arguments)
            await model.open()
            try:
                return [outcome async for outcome in model.answer(requests)], server
            finally:
                await model.close()

    return asyncio.run(go())


def make_reply(text: Any = "yes", finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text, **more}, "finish_reason": finish}], "model": "m"}


@pytest.mark.parametrize(
    ("reply", "value", "finish", "reasoning"),
    [
        (make_reply("5"), "5", "stop", None),
        (make_reply("5", "length"), "5", "length", None),
        (make_reply("", "content_filter"), "", "refused", None),
        (make_reply(None, "content_filter"), "", "refused", None),
        (make_reply(None, "stop", refusal="I cannot"), "I cannot", "refused", None),
        (make_reply("5", reasoning_content="2+3"), "5", "stop", "2+3"),
        (make_reply("5", reasoning="2+3"), "5", "stop", "2+3"),
        (make_reply(None, "length", reasoning_content="2+"), "", "length", "2+"),
        (make_reply([{"type": "text", "text": "5"}]), "5", "stop", None),
        (
            make_reply(
                [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "2+3"}]},
                    {"type": "text", "text": "5"},
                ]
            ),
            "5",
            "stop",
            "2+3",
        ),
        (
            make_reply("5", "tool_calls", tool_calls=[{"id": "1", "function": {"name": "sum"}}]),
            "5",
            "stop",
            None,
        ),
        (
            make_reply(None, "tool_calls", tool_calls=[{"id": "1", "function": {"name": "sum"}}]),
            "",
            "stop",
            None,
        ),
        (make_reply("hm</think>\n5"), "5", "stop", "hm"),
    ],
)
def test_finish_reasons_are_mapped(reply: Any, value: str, finish: str, reasoning: str | None) -> None:
    arguments = {"think_end_token": "</think>"} if "</think>" in str(reply) else {}
    (outcome,), _ = _send_requests(lambda asked: replying(reply), [generate("q")], probe=False, **arguments)
    assert isinstance(outcome, Response)
    assert (outcome.value, outcome.finish, outcome.reasoning) == (value, finish, reasoning)


@pytest.mark.parametrize(
    ("text", "finish", "value", "reasoning"),
    [
        ("<think>maybe 7</think>\n42", "stop", "42", "maybe 7"),
        ("maybe 7</think>42", "stop", "42", "maybe 7"),
        ("[THINK]maybe 7[/THINK]42", "stop", "42", "maybe 7"),
        ("<think>maybe 7", "length", "", "maybe 7"),
        ("what does <think> mean?", "stop", "what does <think> mean?", None),
    ],
)
def test_reasoning_in_the_text_is_separated(
    text: str, finish: str, value: str, reasoning: str | None
) -> None:
    (outcome,), _ = _send_requests(
        lambda asked: replying(make_reply(text, finish)), [generate("q", until=[])], probe=False
    )
    assert isinstance(outcome, Response)
    assert (outcome.value, outcome.finish, outcome.reasoning) == (value, finish, reasoning)


@pytest.mark.parametrize(
    ("api", "settings", "expected"),
    [
        ("chat", {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ("chat", {"thinking_budget": 100}, {"thinking_token_budget": 100, "max_tokens": 116}),
        ("chat", {"include_reasoning": False}, {"include_reasoning": False}),
        ("responses", {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ("responses", {"include_reasoning": True}, {"reasoning": {"summary": "auto"}}),
    ],
)
def test_settings_of_reasoning_are_translated(
    api: str, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    reply = make_reply("5") | {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "text", "text": "5"}]}],
    }
    request = generate("q", max_gen_toks=16, until=[], **settings)
    (outcome,), server = _send_requests(lambda asked: replying(reply), [request], probe=False, api=api)
    assert isinstance(outcome, Response), outcome
    payload = server.asked[-1].json
    assert {key: payload.get(key) for key in expected} == expected
    assert "thinking_budget" not in payload


@pytest.mark.parametrize(
    ("item", "reasoning"),
    [
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "2+3"}]}, "2+3"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, ""),
    ],
)
def test_reasoning_without_a_message_is_an_empty_answer(item: dict[str, Any], reasoning: str) -> None:
    reply = {"status": "completed", "output": [item], "model": "m"}
    (outcome,), _ = _send_requests(
        lambda asked: replying(reply), [generate("q")], probe=False, api="responses"
    )
    assert isinstance(outcome, Response), outcome
    assert (outcome.value, outcome.finish, outcome.reasoning) == ("", "stop", reasoning)


def test_a_stop_string_does_not_end_the_reasoning() -> None:
    whole = "<think>Q: 7?</think>42 Q: next"

    def script(asked: ReceivedRequest) -> list[Act]:
        return replying(make_reply(whole.partition("Q:")[0] if "stop" in asked.json else whole))

    requests = [generate("a", until=["Q:"]), generate("b", until=["Q:"])]
    outcomes, server = _send_requests(script, requests, probe=False)
    assert [(one.value, one.reasoning) for one in outcomes] == [("42 ", "Q: 7?")] * 2
    assert sum("stop" not in call.json for call in server.asked) == 2


@pytest.mark.parametrize(
    "reply", [make_reply(None), {"choices": []}, {}, [], make_reply(5), {"choices": [{}]}]
)
def test_a_reply_without_an_answer_is_retried_and_then_fails(reply: Any) -> None:
    (outcome,), server = _send_requests(
        lambda asked: replying(reply), [generate("q")], probe=False, max_retries=2, retry_backoff_s=0.001
    )
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.attempts, len(server.asked)) == ("bad reply", 3, 3)


def test_a_prompt_blocked_by_a_filter_is_a_refusal() -> None:
    body = {"error": {"message": "The response was filtered", "code": "content_filter"}}
    (outcome,), _ = _send_requests(lambda asked: replying(body, 400), [generate("q")], probe=False)
    assert isinstance(outcome, Response) and outcome.finish == "refused"


def test_settings_the_server_rejects_are_omitted() -> None:
    def script(asked: ReceivedRequest) -> list[Act]:
        if asked.method == "GET":
            return replying({}, 404)
        payload = asked.json
        if "max_tokens" in payload:
            message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return replying({"error": {"message": message}}, 400)
        for name in ("temperature", "stop"):
            if name in payload:
                return replying({"error": {"message": f"'{name}' is not supported with this model."}}, 400)
        return replying(make_reply("a1b"))

    (outcome,), server = _send_requests(script, [generate("q", until=["1"])])
    assert isinstance(outcome, Response) and outcome.value == "a"
    assert server.asked[-1].json.keys() == {"model", "messages", "max_completion_tokens", "seed"}


def test_a_setting_that_makes_the_server_fail_is_found() -> None:
    """`transformers serve` replies 500 to stop strings if the model supports images."""

    def script(asked: ReceivedRequest) -> list[Act]:
        if asked.method == "GET":
            return replying({}, 500)
        return replying({}, 500) if "stop" in asked.json else replying(make_reply("a1b"))

    (outcome,), server = _send_requests(script, [generate("q", until=["1"])], retry_backoff_s=0.001)
    assert isinstance(outcome, Response) and outcome.value == "a"
    assert server.asked[-1].json.keys() == {"model", "messages", "max_tokens", "temperature", "seed"}


def test_a_wrong_key_is_reported_on_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY_OF_MINE", "sk-wrong-key-1234")
    with serving(key="sk-right") as guarded:
        model = make_openai_model(guarded, api_key_env="TEST_KEY_OF_MINE")
        with pytest.raises(UserError) as raised:
            asyncio.run(model.probe())
        assert raised.value.exit_code == 2
        assert "TEST_KEY_OF_MINE" in raised.value.hint
        assert "sk-wrong-key-1234" not in str(raised.value)
        monkeypatch.setenv("TEST_KEY_OF_MINE", "sk-right")
        assert len(ask(make_openai_model(guarded, api_key_env="TEST_KEY_OF_MINE"), [generate("q")])) == 1


def test_an_unknown_model_is_reported_before_the_first_request(server: EmbeddedServer) -> None:
    with pytest.raises(InvalidOption, match="model not found") as raised:
        asyncio.run(OpenAIModel(model="other", base_url=server.url).probe())
    assert "embedded" in raised.value.hint


def test_an_unreachable_server_is_a_note_in_the_plan_and_an_error_on_open() -> None:
    with serving() as gone:
        url = gone.url
    model = OpenAIModel(model="embedded", base_url=url, max_retries=0)
    (note,) = asyncio.run(model.probe())
    assert "cannot reach" in note
    with pytest.raises(Exception, match="cannot reach"):
        asyncio.run(model.open())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "missing argument: model"),
        ({"model": "m", "api_key": "sk-secret"}, "not allowed as an argument"),
        ({"model": "m", "num_concurent": 3}, "num_concurent"),
        ({"model": "m", "timeout": "long"}, "timeout"),
        ({"model": "m", "num_concurrent": -1}, "num_concurrent"),
        ({"model": "m", "header": "x"}, "header"),
        ({"model": "m", "base_url": "localhost"}, "invalid URL"),
        ({"model": "m", "api": "telepathy"}, "chat or responses"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says) as raised:
        make_model("openai", arguments)
    assert "sk-secret" not in str(raised.value)


def test_openai_requires_a_key_before_the_first_request() -> None:
    with pytest.raises(InvalidOption, match="no API key") as raised:
        asyncio.run(OpenAIModel(model="gpt-4o").probe())
    assert "OPENAI_API_KEY" in raised.value.hint


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ({}, "https://api.openai.com/v1"),
        ({"base_url": "http://localhost:8000/v1/chat/completions"}, "http://localhost:8000/v1"),
        ({"base_url": "http://localhost:8000/v1/"}, "http://localhost:8000/v1"),
        ({"base_url": "http://localhost:8000"}, "http://localhost:8000/v1"),
        ({"base_url": "https://openrouter.ai/api/v1"}, "https://openrouter.ai/api/v1"),
        (
            {"base_url": "https://me.openai.azure.com", "api_version": "2024-10-21"},
            "https://me.openai.azure.com/openai/deployments/m?api-version=2024-10-21",
        ),
    ],
)
def test_base_url_may_include_the_path_of_a_call(arguments: dict[str, Any], url: str) -> None:
    identity = asyncio.run(OpenAIModel(model="m", **arguments).identify())
    assert identity["base_url"] == url


@pytest.mark.parametrize(
    "name",
    "openai openai-chat-completions local-chat-completions openai_compatible async_openai openai_compatible_chat gpt4v".split(),
)
def test_names_of_other_harnesses_are_supported(name: str, server: EmbeddedServer) -> None:
    assert name in MODELS.names()
    model = make_model(name, {"model_version": "embedded", "base_url": server.url, "num_concurrent": 4})
    assert model.name == "embedded" and model.traits.in_flight == 4


def test_audio_is_sent_as_wav_and_video_as_frames_or_files(tmp_path: Path) -> None:
    import numpy

    from assay.core.records.messages import Audio, Message, Prompt, Text, Video

    tone = numpy.sin(numpy.arange(8000) / 20).astype(numpy.float32)
    frames = [Pictures.new("RGB", (8, 8), (number, 0, 0)) for number in range(6)]
    sound = Audio(digest="tone", load=lambda: (tone, 16_000))
    video = Video(digest="clip", load=lambda: frames)
    file = Video(digest="file", load=lambda: b"\x00\x00\x00\x18ftypmp42")

    def request(part: Any, document: int) -> Any:
        return generate(Prompt((Message("user", (part, Text("?"))),), chat=True), document=document)

    def pieces(part: Any, **arguments: Any) -> Any:
        _, server = _send_requests(
            lambda asked: replying(make_reply()), [request(part, 0)], probe=False, **arguments
        )
        return server.asked[-1].json["messages"][0]["content"][:-1]

    (heard,) = pieces(sound)
    data = base64.b64decode(heard["input_audio"]["data"])
    assert heard["type"] == "input_audio" and heard["input_audio"]["format"] == "wav"
    assert data[:4] == b"RIFF" and len(data) == 44 + 2 * 8000
    shown = pieces(video, max_frames_num=3)
    assert [piece["type"] for piece in shown] == ["image_url"] * 3
    (whole,) = pieces(file, video="file")
    assert whole["video_url"]["url"].startswith("data:video/mp4;base64,")


def test_an_image_is_encoded_once_and_scaled_to_the_limit(tmp_path: Path) -> None:
    from assay.models.remote.protocol.media import MediaEncoding, encode_image
    from assay.tasks.prompts.media_parts import to_image_part

    path = tmp_path / "noise.png"
    Pictures.effect_noise((300, 200), 90).save(path)
    loads = 0
    kept: dict[str, Any] = {}

    def keep(how: str, make: Any) -> Any:
        nonlocal loads
        if how not in kept:
            loads += 1
            kept[how] = make()
        return kept[how]

    from dataclasses import replace

    part = replace(to_image_part(path), keep=keep)
    first = encode_image(part, MediaEncoding())
    assert encode_image(part, MediaEncoding()) is first and loads == 1
    assert str(first.url).startswith("data:image/png;base64,") and first.nbytes == len(first.data)
    small = encode_image(part, MediaEncoding(max_bytes=9000))
    assert small.nbytes <= 9000
    few = to_image_part(encode_image(part, MediaEncoding(max_pixels=1000)).url).load()
    assert few.width * few.height <= 1000
    assert base64.b64decode(first.data) == path.read_bytes(), "a file that can be sent is sent as it is"
    assert encode_image(part, MediaEncoding(image_format="png")).data != first.data
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(MediaError):
        encode_image(to_image_part(path), MediaEncoding())
    same = to_image_part(first.url).load()
    again = to_image_part(encode_image(part, MediaEncoding(image_format="png")).url).load()
    assert same.tobytes() == again.tobytes(), "what is small enough keeps every pixel"


@pytest.mark.parametrize(
    ("given", "first", "most"), [(None, 8, 1024), (5, 5, 5), (32, 32, 32), (256, 32, 256), (0, 1, 1)]
)
def test_concurrency_starts_low_unless_the_user_sets_it(
    monkeypatch: pytest.MonkeyPatch, given: int | None, first: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    options = Options(model="m", num_concurrent=given)
    assert (options.initial_concurrency, options.max_concurrency) == (first, most)
    endpoint = Options(model="m", base_url="http://localhost:1/v1", num_concurrent=given).open_endpoint()
    assert (endpoint.limiter.limit, endpoint.limiter.max_concurrency) == (first, most)


@pytest.mark.parametrize(("files", "most"), [(1024, 512), (256, 128), (1, 1), (resource.RLIM_INFINITY, 1024)])
def test_concurrency_leaves_half_of_the_files_to_the_process(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert Options(model="m").max_concurrency == most
