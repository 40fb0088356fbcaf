"""The packaged weights in transformers give the same answers as the embedded model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.models.hf.multimodal.media_requests import ask, chat, choices, plain, values, write

from assay.core.records.messages import Image, Message, Prompt, Text
from assay.core.records.requests import Generate, Request
from assay.models.embedded.adapter import SHIPPED_WEIGHTS, EmbeddedModel
from assay.models.hf import HfModel
from assay.testing import example_requests

pytestmark = pytest.mark.torch


def make_image(name: str, rgb: tuple[int, int, int]) -> Image:
    def load() -> Any:
        from PIL import Image as Pictures

        return Pictures.new("RGB", (48, 32), rgb)

    return Image(digest=name, load=load)


RED, BLUE = make_image("red", (220, 20, 20)), make_image("blue", (20, 20, 220))
SAID = (Message("system", (Text("Be brief."),)), Message("user", (RED, Text("What color is it?"))))
PROMPTS = [
    chat(RED, "What color is it?"),
    chat(BLUE, "What color is it?"),
    chat(RED, BLUE, "What colors are they?"),
    plain(RED, "What color is it?\nAnswer:"),
    plain(BLUE, RED, "First <image> then <image>: what color?"),
    chat("What is 2 + 3?"),
    plain("Copy: abcdef\nOutput:"),
    Prompt((*SAID, Message("assistant", (Text("It is"),))), chat=True),
]


def requests() -> list[Request]:
    found: list[Request] = [
        write(prompt, at, until=["\n"], max_gen_toks=12) for at, prompt in enumerate(PROMPTS)
    ]
    for at, prompt in enumerate(PROMPTS):
        found += choices(prompt, " red", " blue", " a green one", document=20 + at)
    return [*found, *example_requests(EmbeddedModel().traits.abilities)]


@pytest.mark.parametrize("batch_size", [1, 6])
def test_answers_equal_the_embedded_model(batch_size: int) -> None:
    asked = requests()
    own = values(ask(EmbeddedModel(), asked))
    through = values(ask(HfModel(pretrained=str(SHIPPED_WEIGHTS), batch_size=batch_size), asked))
    for request, one, other in zip(asked, own, through, strict=True):
        if isinstance(request, Generate):
            assert one == other, request.prompt
        else:
            assert one.total == pytest.approx(other.total, abs=1e-4), request.prompt
            assert one.greedy == other.greedy


def test_the_text_part_alone_shares_prefixes() -> None:
    asked = [
        one for one in example_requests(frozenset({"generate", "likelihood"})) if not one.prompt.has_media
    ]
    own = values(ask(EmbeddedModel(), asked))
    text = HfModel(pretrained=str(SHIPPED_WEIGHTS), backend="causal", batch_size=4)
    assert "image" not in text.traits.abilities
    for request, one, other in zip(asked, own, values(ask(text, asked)), strict=True):
        same = one == other if isinstance(request, Generate) else abs(one.total - other.total) < 1e-4
        assert same, request.prompt


def test_the_preview_is_the_rendered_template() -> None:
    model, own = HfModel(pretrained=str(SHIPPED_WEIGHTS)), EmbeddedModel()
    for prompt in PROMPTS:
        assert model.preview(write(prompt)).replace("<image>", "") == own.preview(write(prompt)).replace(
            "<image>", ""
        )


def test_traits_and_identity_come_from_the_small_files() -> None:
    model = HfModel(pretrained=str(SHIPPED_WEIGHTS))
    assert {"image", "video", "generate", "likelihood", "rolling", "chat"} == model.traits.abilities
    identity = asyncio.run(_identify(model))
    assert identity["media.frames"] == "32" and identity["weights_sha256"] and identity["processor_sha256"]


def test_image_settings_change_the_identity() -> None:
    def read_identity(**arguments: Any) -> dict[str, str]:
        return asyncio.run(_identify(HfModel(pretrained=str(SHIPPED_WEIGHTS), **arguments)))

    default_identity = read_identity()
    for change in ({"max_pixels": 1000}, {"max_num_frames": 4}, {"system_prompt": "Hi."}, {"fps": 2}):
        assert read_identity(**change) != default_identity, change
    assert read_identity(use_cache=False) == read_identity(batch_size=7) == default_identity


async def _identify(model: HfModel) -> dict[str, str]:
    return dict(await model.identify())
