"""Generate media and send requests about them to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests import making

from assay.core.ports import Model
from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import Outcome, Response

__all__ = ["ask", "chat", "choices", "picture", "plain", "sound", "values", "video", "write"]


def picture(number: int, width: int = 40, height: int = 30) -> Image:
    def load() -> Any:
        import numpy
        from PIL import Image as Pictures

        pixels = numpy.random.default_rng(number).random((height, width, 3)) * 255
        return Pictures.fromarray(pixels.astype("uint8"))

    return Image(digest=f"picture-{number}-{width}x{height}", load=load)


def video(number: int, frames: int = 5) -> Video:
    pictures = [picture(100 * number + at) for at in range(frames)]
    return Video(digest=f"video-{number}-{frames}", load=lambda: [one.load() for one in pictures])


def sound(number: int, samples: int = 8000) -> Audio:
    def load() -> Any:
        import numpy

        noise = numpy.random.default_rng(number).standard_normal(samples).astype("float32")
        return noise * 0.3, 16_000

    return Audio(digest=f"sound-{number}-{samples}", load=load)


def chat(*parts: Part | str) -> Prompt:
    return Prompt((Message("user", tuple(_part(part) for part in parts)),), chat=True)


def plain(*parts: Part | str) -> Prompt:
    return Prompt((Message("user", tuple(_part(part) for part in parts)),))


def _part(part: Part | str) -> Part:
    return Text(part) if isinstance(part, str) else part


def write(prompt: Prompt, document: int = 0, repeat: int = 0, **settings: Any) -> Generate:
    values = {"until": [], "max_gen_toks": 6, **settings}
    return Generate(task="t", document=document, repeat=repeat, prompt=prompt, settings=Settings(values))


def choices(prompt: Prompt, *texts: str, document: int = 0) -> list[Likelihood]:
    return [
        Likelihood(task="t", document=document, index=at, prompt=prompt, continuation=text)
        for at, text in enumerate(texts)
    ]


def ask(model: Model, requests: Sequence[Request]) -> list[Outcome]:
    """Return the outcomes in the order of the requests."""
    return making.ask(model, *requests)


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """Return the answers; a failure fails the test."""
    assert all(isinstance(outcome, Response) for outcome in outcomes), outcomes
    return [outcome.value for outcome in outcomes if isinstance(outcome, Response)]
