from __future__ import annotations

from itertools import combinations
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Role, Text, Video


def not_loaded() -> NoReturn:
    raise AssertionError("media must not be loaded for a digest")


def picture(digest: str = "d1", **details: Any) -> Image:
    return Image(digest=digest, load=not_loaded, **details)


def clip(start_s: float | None = None, end_s: float | None = None) -> Video:
    return Video(digest="d1", load=not_loaded, start_s=start_s, end_s=end_s)


def prompt(*parts: Part, role: Role = "user", chat: bool = False) -> Prompt:
    return Prompt((Message(role, parts),), chat=chat)


DIFFERENT = {
    "a text": Prompt.of_text("2+2="),
    "another text": Prompt.of_text("2+3="),
    "no text": Prompt.of_text(""),
    "the same text as chat": prompt(Text("2+2="), chat=True),
    "the same text from another role": prompt(Text("2+2="), role="assistant", chat=True),
    "the same text in two parts": prompt(Text("2+"), Text("2="), chat=True),
    "the same text in two messages": Prompt(
        (Message("user", (Text("2+"),)), Message("user", (Text("2="),))), chat=True
    ),
    "a picture": prompt(picture(), Text("2+2=")),
    "another picture": prompt(picture("d2"), Text("2+2=")),
    "a picture after the text": prompt(Text("2+2="), picture()),
    "a sound of the same hash": prompt(Audio(digest="d1", load=not_loaded), Text("2+2=")),
    "a video of the same hash": prompt(clip(), Text("2+2=")),
    "a stretch of that video": prompt(clip(1.0, 2.0), Text("2+2=")),
    "its open end": prompt(clip(1.0, None), Text("2+2=")),
}


@pytest.mark.parametrize(("first", "second"), [*combinations(DIFFERENT, 2)])
def test_prompts_that_differ_have_different_digests(first: str, second: str) -> None:
    assert DIFFERENT[first].digest != DIFFERENT[second].digest


def test_the_digest_of_a_plain_text_is_pinned() -> None:
    assert Prompt.of_text("2+2=").digest == "2f4db69dfa205d957266dc9bc74867da"
    assert prompt(Text("2+2="), picture(), chat=True).digest == "8b6a29dafe4e3a3245156a41738ccd7d"


def test_media_count_by_content_not_by_origin_or_loader() -> None:
    first = prompt(picture(source="a.png"))
    second = prompt(Image(digest="d1", load=lambda: None, source="column `image`"))
    assert first.digest == second.digest
    assert first == second


@given(st.lists(st.lists(st.text(max_size=3), max_size=3), min_size=1, max_size=3))
def test_equal_prompts_have_equal_digests(texts: list[list[str]]) -> None:
    first, second = (
        Prompt(tuple(Message("user", tuple(map(Text, message))) for message in texts)) for _ in range(2)
    )
    assert first == second
    assert first.digest == second.digest


def test_a_digest_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompt(Text("2+2="))
    before = asked.digest
    monkeypatch.setattr("assay.core.records.messages.digest_text", not_loaded)
    assert asked.digest == before


def test_text_leaves_media_out_and_media_leaves_text_out() -> None:
    asked = prompt(Text("What is "), picture(), Text("this?"), clip())
    assert asked.text == "What is this?"
    assert asked.media == (picture(), clip())


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param((), False, id="nothing was said"),
        pytest.param((Message("user", (Text("a"),)),), False, id="the user spoke last"),
        pytest.param(
            (Message("user", (Text("a"),)), Message("assistant", (Text("b"),))), True, id="the model goes on"
        ),
    ],
)
def test_a_prompt_continues_when_the_assistant_spoke_last(
    messages: tuple[Message, ...], expected: bool
) -> None:
    assert Prompt(messages, chat=True).continues is expected
