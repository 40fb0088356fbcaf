from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pictures

from assay.core.errors import DatasetError
from assay.core.records.messages import Audio, Image, Video
from assay.tasks.prompts.media_parts import to_audio_part, to_image_part, to_media_part, to_video_part

Write = Callable[..., Path]


def picture(colour: str = "red", size: tuple[int, int] = (3, 2)) -> Pictures.Image:
    return Pictures.new("RGB", size, colour)


def png(colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    picture(colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_picture_is_named_by_what_it_shows() -> None:
    assert to_image_part(picture()).digest == to_image_part(picture()).digest
    others = [picture("blue"), picture(size=(2, 3)), picture().convert("L"), picture().convert("RGBA")]
    assert len({to_image_part(one).digest for one in [picture(), *others]}) == 5


def test_a_picture_in_memory_is_given_back_as_it_is() -> None:
    original = picture()
    assert to_image_part(original).load() is original


def test_bytes_and_a_file_with_the_same_content_have_the_same_name(write: Write) -> None:
    path = write("x.png", png())
    parts = [
        to_image_part(png()),
        to_image_part(bytearray(png())),
        to_image_part(path),
        to_image_part(str(path)),
    ]
    assert len({part.digest for part in parts}) == 1
    for part in parts:
        assert part.load().convert("RGB").getpixel((0, 0)) == (255, 0, 0)
    assert to_image_part(png("blue")).digest != parts[0].digest


def test_a_picture_is_decoded_only_when_it_is_needed(write: Write) -> None:
    part = to_image_part(write("x.png", b"not a picture"))
    assert part.digest
    with pytest.raises(DatasetError, match="cannot read the image") as caught:
        part.load()
    assert caught.value.where.endswith("x.png")


@pytest.mark.parametrize("data", [b"", b"GIF89a", png()[:40], b"\x89PNG\r\n\x1a\n" + b"\x00" * 50])
def test_a_broken_picture_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(DatasetError, match="cannot read the image") as caught:
        to_image_part(data, where="a.yaml:5").load()
    assert caught.value.where == "a.yaml:5"


@given(at=st.integers(0, len(png()) - 1), value=st.integers(0, 255), cut=st.integers(0, len(png())))
def test_whatever_is_wrong_with_a_picture_only_our_errors_come_out(at: int, value: int, cut: int) -> None:
    data = bytearray(png())
    data[at] = value
    with suppress(DatasetError):
        to_image_part(bytes(data[: cut or None])).load()


def test_a_picture_too_large_to_be_true_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pictures, "MAX_IMAGE_PIXELS", 2)
    with pytest.raises(DatasetError, match="cannot read the image"):
        to_image_part(png()).load()


# --- what helpers return ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(lambda folder: picture(), Image, id="a picture"),
        pytest.param(lambda folder: png(), Image, id="bytes"),
        pytest.param(lambda folder: {"bytes": png(), "path": None}, Image, id="an undecoded column"),
        pytest.param(
            lambda folder: {"bytes": None, "path": str(folder / "x.png"), "type": "image"}, Image, id="typed"
        ),
        pytest.param(
            lambda folder: {"type": "image", "url": str(folder / "x.png")}, Image, id="a picture by url"
        ),
        pytest.param(
            lambda folder: {"type": "image", "image": picture()}, Image, id="a picture under its kind"
        ),
        pytest.param(lambda folder: str(folder / "x.png"), Image, id="a path"),
        pytest.param(lambda folder: folder / "x.PNG", Image, id="a path in capitals"),
        pytest.param(lambda folder: str(folder / "x.wav"), Audio, id="a sound by path"),
        pytest.param(lambda folder: {"array": [0.0, 1.0], "sampling_rate": 8000}, Audio, id="a sound column"),
        pytest.param(
            lambda folder: {"type": "audio", "url": str(folder / "x.wav")}, Audio, id="a sound by url"
        ),
        pytest.param(lambda folder: str(folder / "x.mp4"), Video, id="a video by path"),
        pytest.param(lambda folder: {"url": str(folder / "x.mp4")}, Video, id="a video by url"),
        pytest.param(
            lambda folder: {"type": "video", "video": str(folder / "x.mp4")}, Video, id="under its kind"
        ),
    ],
)
def test_whatever_a_helper_returns_becomes_a_part(
    write: Write, tmp_path: Path, make: Any, kind: type
) -> None:
    for name in ("x.png", "x.PNG", "x.wav", "x.mp4"):
        write(name, png())
    part = to_media_part(make(tmp_path))
    assert isinstance(part, kind)
    assert part.digest


@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        1.5,
        object(),
        [],
        "nowhere.png",
        "nowhere.mp4",
        "",
        {},
        {"type": "image"},
        {"url": None},
        "~nobody/x.png",
    ],
    ids=lambda value: "object" if type(value) is object else repr(value),
)
def test_what_is_not_media_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(DatasetError) as caught:
        to_media_part(value, where="a.yaml:5")
    assert caught.value.where == "a.yaml:5"


def test_a_text_that_is_no_path_at_all_is_refused() -> None:
    with pytest.raises(DatasetError):
        to_image_part("A" * 5000, where="a.yaml:5")


def test_a_sound_keeps_its_samples_and_its_rate() -> None:
    part = to_audio_part({"array": [0.0, 0.5, -1.0], "sampling_rate": 8000, "path": "x.wav"})
    samples, rate_hz = part.load()
    assert (samples.dtype, samples.tolist(), rate_hz, part.source) == (
        np.float32,
        [0.0, 0.5, -1.0],
        8000,
        "x.wav",
    )
    assert part.digest != to_audio_part({"array": [0.0, 0.5, -1.0], "sampling_rate": 16000}).digest
    assert part.digest != to_audio_part({"array": [0.0, 0.5, 1.0], "sampling_rate": 8000}).digest


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, (None, None)),
        ({"video_start": 1.5, "video_end": 3.0}, (1.5, 3.0)),
        ({"start_time": 2.0}, (2.0, None)),
    ],
)
def test_a_video_may_be_a_stretch_of_one(
    write: Write, keys: dict[str, float], expected: tuple[Any, Any]
) -> None:
    part = to_video_part({"url": str(write("x.mp4", b"moving")), **keys})
    assert (part.start_s, part.end_s) == expected
