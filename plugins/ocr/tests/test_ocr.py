"""Real pictures to a real model: text draw_lines here is read back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pictures
from PIL import ImageDraw, ImageFont
from tests.making import ask

from assay.core.errors import InvalidOption
from assay.core.records.messages import Image, Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response
from assay.models import make_model
from assay.tasks.prompts.media_parts import to_image_part
from assay.testing import MODEL_CHECKS
from assay_plugin_ocr import OcrModel

needs_package = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("rapidocr_onnxruntime") is None,
    reason="not installed: rapidocr_onnxruntime",
)


def broken_load() -> Any:
    raise OSError("the disk is gone")


def draw_lines(*lines: str) -> Pictures.Image:
    """Return an image with black text on white."""
    picture = Pictures.new("RGB", (420, 20 + 60 * len(lines)), "white")
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        pen.text((20, 15 + 60 * number), line, fill="black", font=ImageFont.load_default(36))
    return picture


def read(*prompts: tuple[Any, ...]) -> list[Any]:
    requests = [
        Generate(
            task="t",
            document=at,
            prompt=Prompt((Message("user", (*parts, Text("Read."))),)),
            settings=Settings(),
        )
        for at, parts in enumerate(prompts)
    ]

    return ask(OcrModel(shortest_side=64, threads=1), *requests)


@needs_package
def test_text_in_images_is_read_line_by_line(tmp_path: Path) -> None:
    draw_lines("TOTAL 12.50").save(tmp_path / "x.png")
    two_lines, two_pictures, nothing, broken = read(
        (to_image_part(draw_lines("HELLO WORLD", "RECEIPT 2024")),),
        (to_image_part(tmp_path / "x.png"), to_image_part(draw_lines("THANK YOU"))),
        (to_image_part(Pictures.new("L", (100, 60), 255)),),
        (Image(digest="b", load=broken_load, source="x"),),
    )
    assert [plain(line) for line in two_lines.value.splitlines()] == ["HELLOWORLD", "RECEIPT2024"]
    assert [plain(line) for line in two_pictures.value.splitlines()] == ["TOTAL12.50", "THANKYOU"]
    assert isinstance(nothing, Response) and nothing.value == ""
    assert isinstance(broken, Failure)


def plain(line: str) -> str:
    return line.replace(" ", "").upper()


@needs_package
def test_the_identity_names_weights_and_settings() -> None:
    facts = asyncio.run(OcrModel().identify())
    assert len(facts["weights_sha256"]) == 64
    assert facts["rapidocr_onnxruntime"]
    assert asyncio.run(OcrModel(min_score=0.9).identify()) != facts


@pytest.mark.parametrize(
    "arguments", [{"min_score": "high"}, {"min_score": 2}, {"shortest_side": 5}, {"size": 1}]
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        make_model("ocr", arguments)


@needs_package
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_the_model_fulfils_the_contract(check: Callable[..., None]) -> None:
    check(lambda: OcrModel(shortest_side=64, threads=1))
