"""Every supported architecture reads its images, audio and video, alone and in batches."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from tests.models.hf.multimodal.media_requests import (
    ask,
    chat,
    choices,
    picture,
    plain,
    sound,
    values,
    video,
    write,
)
from tests.models.hf.multimodal.tiny_multimodal import KINDS, tiny

from assay.core.records.requests import Generate, Request
from assay.models.hf import HfModel

pytestmark = pytest.mark.torch
ALL = sorted(set(KINDS) - {"whisper"})  # a speech model has no prompts
HEARING = {"qwen2_audio", "qwen2_5_omni", "phi4_multimodal"}
SEEING = set(ALL) - {"qwen2_audio"}


def checkpoint(kind: str) -> str:
    if kind == "smolvlm" and find_spec("num2words") is None:
        pytest.skip("not installed: num2words")
    return str(tiny(kind))


def make_requests(kind: str) -> list[Request]:
    """Return requests of every kind that the checkpoint supports, of different lengths and sizes."""
    prompts = [chat("Hello you"), chat("Hi"), plain("The sky is")]
    if kind in SEEING:
        prompts += [chat(picture(1), "What?"), chat(picture(2, 70), "What is it?"), plain(picture(1), "So")]
        prompts += [chat(picture(3), "and", picture(4, 33, 60), "Compare them")]
        if kind != "phi4_multimodal":  # its tiny checkpoint still uses 500 tokens per frame
            prompts += [chat(video(1), "What happens?"), chat(video(2, 3), "What?")]
    if kind in HEARING:
        prompts += [chat(sound(1), "What is said?"), chat(sound(2, 12_000), "What?")]
    requests: list[Request] = [write(prompt, at) for at, prompt in enumerate(prompts)]
    for at, prompt in enumerate(prompts[1:4] + prompts[-2:]):
        requests += choices(prompt, " a", " red one", " b c", document=20 + at)
    return requests


@pytest.mark.parametrize("kind", ALL)
def test_answers_do_not_depend_on_the_batch(kind: str) -> None:
    requests = make_requests(kind)
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


@pytest.mark.parametrize("kind", ["gemma3", "idefics3"])
def test_answers_equal_direct_calls_of_transformers(kind: str) -> None:
    """Compare with direct calls: template, processor, generate; and one forward pass for a likelihood."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(checkpoint(kind))
    model = AutoModelForImageTextToText.from_pretrained(checkpoint(kind), dtype=torch.float32).eval()
    content = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    medium = picture(1, 60, 50)
    inputs = processor(text=[text], images=[[medium.load()]], return_tensors="pt")
    with torch.inference_mode():
        written = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs.input_ids.shape[1] :]
        longer = processor(text=[text + " ab"], images=[[medium.load()]], return_tensors="pt")
        chances = model(**longer).logits[0].log_softmax(-1)
    ids = longer.input_ids[
        0, inputs.input_ids.shape[1] - 1 :
    ]  # the last newline of the template is part of the context, as in lm-eval
    total = sum(float(chances[at - len(ids) - 1, token]) for at, token in enumerate(ids.tolist()))
    asked: list[Request] = [write(chat(medium, "What is it?")), *choices(chat(medium, "What is it?"), " ab")]
    own = values(ask(HfModel(pretrained=checkpoint(kind)), asked))
    assert own[0] == processor.decode(written, skip_special_tokens=True)
    assert own[1].total == pytest.approx(total, abs=1e-4)
