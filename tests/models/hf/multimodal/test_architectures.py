"""Every architecture that has a name: its pictures, sounds and videos reach it, alone and in company."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from tests.models.hf.multimodal.asking import ask, chat, choices, picture, plain, sound, values, video, write
from tests.models.hf.multimodal.tiny import KINDS, tiny

from assay.core.requests import Generate, Request
from assay.models.hf import HfModel

pytestmark = pytest.mark.torch
ALL = sorted(set(KINDS) - {"whisper"})  # which has no prompts
HEARING = {"qwen2_audio", "qwen2_5_omni", "phi4_multimodal"}
SEEING = set(ALL) - {"qwen2_audio"}


def checkpoint(kind: str) -> str:
    if kind == "smolvlm" and find_spec("num2words") is None:
        pytest.skip("not installed: num2words")
    return str(tiny(kind))


def asked_of(kind: str) -> list[Request]:
    """Questions of every kind the checkpoint takes; those of one kind differ in length and size."""
    prompts = [chat("Hello you"), chat("Hi"), plain("The sky is")]
    if kind in SEEING:
        prompts += [chat(picture(1), "What?"), chat(picture(2, 70), "What is it?"), plain(picture(1), "So")]
        prompts += [chat(picture(3), "and", picture(4, 33, 60), "Compare them")]
        prompts += [chat(video(1), "What happens?"), chat(video(2, 3), "What?")]
    if kind in HEARING:
        prompts += [chat(sound(1), "What is said?"), chat(sound(2, 12_000), "What?")]
    requests: list[Request] = [write(prompt, at) for at, prompt in enumerate(prompts)]
    for at, prompt in enumerate(prompts[1:4] + prompts[-2:]):
        requests += choices(prompt, " a", " red one", " b c", document=20 + at)
    return requests


@pytest.mark.parametrize("kind", ALL)
def test_answers_do_not_depend_on_the_batch(kind: str) -> None:
    requests = asked_of(kind)
    alone, together = (
        values(ask(HfModel(pretrained=checkpoint(kind), batch_size=size), requests)) for size in (1, 5)
    )
    for request, one, other in zip(requests, alone, together, strict=True):
        if isinstance(request, Generate):
            assert one == other, request.prompt
        else:
            assert one.total == pytest.approx(other.total, abs=1e-4), request.prompt


@pytest.mark.parametrize("kind", ALL)
def test_media_change_the_answer(kind: str) -> None:
    medium: Any = picture if kind in SEEING else sound
    prompts = [chat(medium(1), "What is it?"), chat(medium(2), "What is it?"), chat("What is it?")]
    if kind in SEEING:
        prompts.append(chat(video(1), "What is it?"))
    requests = [
        request for at, prompt in enumerate(prompts) for request in choices(prompt, " ab", document=at)
    ]
    totals = [
        value.total for value in values(ask(HfModel(pretrained=checkpoint(kind), batch_size=4), requests))
    ]
    assert len({round(total, 4) for total in totals}) == len(totals), totals
