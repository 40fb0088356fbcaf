"""Requests and outcomes round-trip; media are sent separately."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from PIL import Image as Pictures

from assay.core.errors import InvalidOption, MediaError
from assay.core.records.messages import Image, Media, Message, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.core.records.tools import ResponseFormat, Tool, ToolCall, ToolResult, Tools
from assay.media import picture
from assay.models.replicas.serialization import (
    ModelError,
    Report,
    build_media_key,
    load_payload,
    pack_report,
    pack_requests,
    restore_media_part,
    unpack_report,
    unpack_requests,
)
from assay.tasks.prompts.media_parts import to_audio_part, to_image_part, to_video_part

TEXT = Prompt.of_text("What is 1 + 1?")
CHAT = Prompt((Message("system", (Text("Be brief."),)), Message("user", (Text("Hi"),))), chat=True)
REQUESTS: list[Request] = [
    Generate(
        task="t", document=3, prompt=TEXT, settings=Settings(MappingProxyType({"until": ["\n"]})), round=2
    ),
    Likelihood(task="t", document=4, index=1, repeat=2, prompt=CHAT, continuation=" 2"),
    RollingLikelihood(task="u", document=0, prompt=TEXT),
    Generate(
        task="t",
        document=5,
        prompt=Prompt(
            (
                Message("user", (Text("Area?"),)),
                Message("assistant", (ToolCall("area", '{"base": 1}', "c1"),)),
                Message("tool", (ToolResult("2", "c1", "area"),)),
            ),
            chat=True,
        ),
        settings=Settings(),
        tools=Tools(tools=(Tool("area", "Area.", {"type": "object"}),), choice="required", parallel=False),
        response_format=ResponseFormat(schema={"type": "object"}),
    ),
]


def nothing(part: Media, key: str) -> Media:
    raise AssertionError("there are no media")


def pack_and_unpack(request: Request) -> Request:
    """A request with media, as a replica sees it."""
    data, media = pack_requests([request])
    payloads = {build_media_key(part): load_payload(part) for part in media}
    made: dict[str, Any] = {}

    def keep(how: str, make: Any) -> Any:
        return made.setdefault(how, None) or make()

    (there,) = unpack_requests(
        data, lambda part, key: restore_media_part(part, partial(payloads.__getitem__, key), keep)
    )
    return there


def test_requests_round_trip_with_their_ids() -> None:
    data, media = pack_requests(REQUESTS)
    there = unpack_requests(data, nothing)
    assert there == REQUESTS and media == []
    assert [one.id for one in there] == [one.id for one in REQUESTS]
    assert there[0].settings.stop == ("\n",)  # type: ignore[union-attr]


def png(color: str) -> bytes:
    stream = io.BytesIO()
    Pictures.effect_noise((64, 64), 80).convert("RGB").point(lambda value: value if color else 0).save(
        stream, "PNG"
    )
    return stream.getvalue()


def asking(*parts: Media) -> Generate:
    prompt = Prompt((Message("user", (*parts, Text("What is it?"))),), chat=True)
    return Generate(task="t", document=0, prompt=prompt, settings=Settings({}))


def test_requests_contain_only_the_keys_of_images() -> None:
    content = png("red")
    part = to_image_part(content)
    data, media = pack_requests([asking(part), asking(part)])
    assert media == [part]
    assert len(data) < 1500 < len(content)


def test_an_image_round_trips() -> None:
    content = png("red")
    before = asking(to_image_part(content))
    after = pack_and_unpack(before)
    assert after.id == before.id
    (part,) = after.prompt.media
    assert isinstance(part, Image) and part.file is not None
    assert part.file() == content
    assert picture(part).tobytes() == picture(to_image_part(content)).tobytes()


def test_an_image_without_a_file_is_sent_as_pixels() -> None:
    drawn = Pictures.new("P", (8, 8), 3)
    (part,) = pack_and_unpack(asking(to_image_part(drawn))).prompt.media
    assert isinstance(part, Image) and part.file is None
    assert part.load().tobytes() == drawn.tobytes() and part.load().mode == "P"


def test_audio_round_trips_exactly() -> None:
    import numpy

    samples = numpy.sin(numpy.arange(800, dtype=numpy.float32))
    (part,) = pack_and_unpack(asking(to_audio_part({"array": samples, "sampling_rate": 8000}))).prompt.media
    found, rate_hz = part.load()
    assert rate_hz == 8000 and (found == samples).all()


def test_a_video_file_is_sent_with_its_time_range(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"not really a video")
    before = to_video_part({"url": str(tmp_path / "clip.mp4"), "video_start": 1.0, "video_end": 2.5})
    (part,) = pack_and_unpack(asking(before)).prompt.media
    assert isinstance(part, Video)
    assert (part.start_s, part.end_s, part.digest) == (1.0, 2.5, before.digest)
    assert part.load() == b"not really a video"


def test_an_unreadable_image_raises_the_same_error_in_the_replica(tmp_path: Path) -> None:
    (part,) = pack_and_unpack(asking(to_image_part(b"no picture"))).prompt.media
    with pytest.raises(MediaError, match="unknown image format"):
        part.load()
    path = tmp_path / "gone.png"
    path.write_bytes(png("red"))
    gone = to_image_part(path)
    path.unlink()
    (part,) = pack_and_unpack(asking(gone)).prompt.media
    with pytest.raises(MediaError, match="cannot read the media file"):
        part.load()


def test_outcomes_round_trip() -> None:
    outcomes: list[Outcome] = [
        Response(request_id="a", value="x", finish="stop", usage=Usage(1, 2), seconds=0.5, reasoning="hm"),
        Response(request_id="b", value=LogProbability(-1.5, True), tokens=Tokens((" x",), (-1.5,))),
        Failure(request_id="c", kind="bad media", message="no"),
    ]
    report = Report(outcomes=outcomes, busy_s=0.5, more=True)
    assert unpack_report(pack_report(report)) == report


def test_an_exception_of_the_model_keeps_its_name() -> None:
    class OddError(Exception):
        """An exception class that the driver cannot import."""

    error = unpack_report(pack_report(Report(error=OddError("pop")))).error
    assert isinstance(error, ModelError) and type(error).__name__ == "OddError" and str(error) == "pop"
    error = unpack_report(pack_report(Report(error=InvalidOption("no", where="--x", hint="y")))).error
    assert isinstance(error, InvalidOption) and error.hint == "y"
