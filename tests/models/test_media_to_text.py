"""Models that convert media to text: stop strings, and failures for unsupported prompts."""

from __future__ import annotations

import asyncio

import pytest

from assay.core.errors import MediaError
from assay.core.records.messages import Audio, Image, Media, Message, Prompt, Text
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import Failure, Outcome, Response
from assay.models.media_to_text import transcribe_media

IMAGE = Image(digest="d", load=lambda: None, source="x.png")
AUDIO = Audio(digest="d", load=lambda: None)


def make_request(*media: Media, until: tuple[str, ...] = ()) -> Generate:
    prompt = Prompt((Message("user", (*media, Text("Read it."))),))
    return Generate(task="t", document=0, prompt=prompt, settings=Settings({"until": list(until)}))


def transcribe(request: Request, text: str = "one\ntwo\n\nthree") -> Outcome:
    def read(media: tuple[Media, ...]) -> str:
        if media[0].source == "broken":
            raise MediaError("it cannot be read", where="broken.png")
        return text

    async def work() -> list[Outcome]:
        return [outcome async for outcome in transcribe_media([request], read, Image)]

    (outcome,) = asyncio.run(work())
    assert outcome.request_id == request.id
    return outcome


@pytest.mark.parametrize(
    ("until", "expected", "finish"),
    [
        ((), "one\ntwo\n\nthree", ""),
        (("\n\n",), "one\ntwo", "stop"),
        (("three", "\n"), "one", "stop"),
        (("", "four"), "one\ntwo\n\nthree", ""),
    ],
)
def test_an_answer_ends_at_the_first_stop_string(until: tuple[str, ...], expected: str, finish: str) -> None:
    outcome = transcribe(make_request(IMAGE, until=until))
    assert isinstance(outcome, Response)
    assert (outcome.value, outcome.finish) == (expected, finish)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (make_request(), "bad request"),
        (make_request(AUDIO), "bad request"),
        (make_request(IMAGE, AUDIO), "bad request"),
        (make_request(Image(digest="b", load=lambda: None, source="broken")), "bad media"),
        (
            Likelihood(task="t", document=0, prompt=make_request(IMAGE).prompt, continuation=" x"),
            "bad request",
        ),
    ],
    ids=["no medium", "another medium", "both", "a broken one", "a likelihood"],
)
def test_unreadable_media_are_a_failure(request_: Request, kind: str) -> None:
    outcome = transcribe(request_)
    assert isinstance(outcome, Failure)
    assert outcome.kind == kind
