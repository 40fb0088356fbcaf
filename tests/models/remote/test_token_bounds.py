"""The largest number of tokens of a call."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.remote.asking import chat, generate

from assay.core.records.messages import Audio, Image, Message, Prompt, Text, Video
from assay.core.records.responses import Usage
from assay.core.records.tools import Tool, Tools
from assay.models.remote.endpoint import read_usage
from assay.models.remote.protocol.media import MediaEncoding
from assay.models.remote.token_bounds import TokenBounds


@pytest.mark.parametrize(
    "text", ["plain words", "größer", "日本語のテキスト", "\ud800 broken", "🙂" * 50], ids=ascii
)
def test_a_text_has_at_most_as_many_tokens_as_bytes(text: str) -> None:
    empty, found = (TokenBounds("m").compute(chat(one), 100) for one in ("", text))
    assert found.prompt - empty.prompt == len(text.encode(errors="replace"))
    assert found.total == found.prompt + 100


def test_each_message_and_the_definitions_of_tools_need_room() -> None:
    bounds = TokenBounds("m", system_prompt="s" * 50)
    one = Prompt((Message("user", (Text("a" * 100),)),), chat=True)
    two = Prompt((*one.messages, Message("assistant", (Text("b" * 100),))), chat=True)
    assert bounds.compute(two, 1).prompt >= bounds.compute(one, 1).prompt + 100 + 10
    tools = Tools(tools=(Tool("say", "x" * 300),))
    request = generate(one)
    with_tools = type(request)(task="t", document=0, prompt=one, settings=request.settings, tools=tools)
    assert bounds.compute(one, 1, with_tools).prompt >= bounds.compute(one, 1).prompt + 300


def test_a_known_tokenizer_gives_the_exact_number_of_a_text() -> None:
    bounds = TokenBounds("m")
    empty = bounds.compute(chat(""), 1).prompt
    bounds.count_text_tokens = lambda text: len(text.split())
    assert bounds.compute(chat("four words are here"), 1).prompt - empty == 4


def make_images(count: int) -> Prompt:
    parts = [Image(digest=str(at), load=lambda: None) for at in range(count)]
    return Prompt((Message("user", (*parts, Text("?"))),), chat=True)


def test_an_image_needs_the_documented_maximum_until_replies_show_its_tokens() -> None:
    bounds = TokenBounds("m")
    text = bounds.compute(chat("?"), 1).prompt
    for _ in range(30):
        bound = bounds.compute(make_images(2), 1)
        bounds.learn(bound, Usage(1000, 1))
    first = TokenBounds("m").compute(make_images(2), 1).prompt - text
    learned = bounds.compute(make_images(2), 1).prompt - text
    assert (first, learned) == (2 * 16_384, 1500)
    bounds.learn(bound, Usage(4000, 1))
    assert bounds.compute(make_images(1), 1).prompt - text == 3000
    assert TokenBounds("gpt-4o-mini-2024").compute(make_images(1), 1).prompt > 48_000


def test_frames_count_like_images_and_audio_by_its_seconds() -> None:
    import numpy

    def ask(part: Any) -> int:
        return bounds.compute(Prompt((Message("user", (part,)),), chat=True), 1).prompt - empty

    bounds = TokenBounds("m", media=MediaEncoding(max_frames=3))
    empty = bounds.compute(chat(""), 1).prompt
    assert ask(Video(digest="v", load=lambda: None)) == 3 * 16_384
    assert 500 <= ask(Audio(digest="a", load=lambda: (numpy.zeros(160_000, numpy.float32), 16_000))) <= 501


def test_tokens_that_the_server_adds_are_learned() -> None:
    bounds = TokenBounds("m")
    bound = bounds.compute(chat("hi"), 10)
    bounds.learn(bound, Usage(bound.prompt + 2000, 15))
    again = bounds.compute(chat("hi"), 10)
    assert (again.prompt, again.output) == (bound.prompt + 2000, 15)
    bounds.learn(again, Usage(bound.prompt + 2000, 15))
    assert bounds.compute(chat("hi"), 10) == again


def test_concurrent_replies_teach_the_same_excess_once() -> None:
    bounds = TokenBounds("m")
    sent = [bounds.compute(chat("hi"), 10) for _ in range(8)]
    for bound in sent:
        bounds.learn(bound, Usage(bound.prompt + 2000, 15))
    again = bounds.compute(chat("hi"), 10)
    assert (again.prompt, again.output) == (sent[0].prompt + 2000, 15)
    plain = [bounds.compute_plain(50, 10) for _ in range(2)]
    for bound in plain:
        bounds.learn(bound, Usage(bound.prompt + 7, 18))
    assert (bounds.compute_plain(50, 10).prompt, bounds.compute_plain(50, 10).output) == (2057, 18)


def test_an_answer_without_a_limit_reserves_the_longest_one() -> None:
    bounds = TokenBounds("m")
    assert bounds.compute(chat("hi"), None).output == 16_384


def test_a_reply_without_token_counts_uses_what_was_reserved() -> None:
    bound = TokenBounds("m").compute(chat("hi"), 10)
    assert bound.count(None, "used") is bound.count(Usage(0, 0), "requested") is None


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 3, "input_tokens": 9}}, Usage(9, 3)),
        ({"usage": {"input_tokens": 9, "output_tokens": 3}}, Usage(9, 3)),
        ({"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}}, Usage(9, 7)),
        ({"usage": {"prompt_tokens": None}}, None),
        ({"usage": None}, None),
        ([], None),
    ],
    ids=["chat", "responses", "gemini", "null", "no usage", "no object"],
)  # fmt: skip
def test_token_counts_of_all_services_are_read(reply: Any, found: Usage | None) -> None:
    assert read_usage(reply) == found
