from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pictures
from tests.making_media import make_wav, read_frame_numbers, write_video

from assay.core.errors import MediaError, MissingPackage
from assay.core.records.messages import Audio, Image, Media, Video
from assay.media import frames, picture, waveform

pytest.importorskip("av", reason="assay-harness[media] is not installed")


def test_a_picture_is_what_its_part_loads_or_the_array_it_loads() -> None:
    red = Pictures.new("RGB", (2, 2), "red")
    assert picture(Image(digest="d", load=lambda: red)) is red
    assert picture(Image(digest="d", load=lambda: np.asarray(red))).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("load", [lambda: make_wav(1.0), lambda: (np.zeros(8000, np.float32), 8000)])
def test_a_waveform_has_the_rate_the_model_wants(load: Callable[[], Any]) -> None:
    part = Audio(digest="d", load=load)
    assert len(waveform(part, rate_hz=16_000)) == 16_000
    assert len(waveform(part, rate_hz=8000)) == 8000


def test_frames_come_from_files_bytes_and_lists(tmp_path: Path) -> None:
    path = write_video(tmp_path / "x.mp4")
    for load in (lambda: path, lambda: str(path), path.read_bytes):
        assert read_frame_numbers(frames(Video(digest="d", load=load), count=3)) == [0, 9, 19]
        assert read_frame_numbers(frames(Video(digest="d", load=load, start_s=1.0), count=2)) == [10, 19]
    whole = list(frames(Video(digest="d", load=lambda: path)).frames)
    for given in (whole, [np.asarray(one) for one in whole]):
        part = Video(digest="d", load=partial(list, given))
        assert read_frame_numbers(frames(part, count=3)) == [0, 9, 19]
        assert read_frame_numbers(frames(part, fps=2.0, max_frames=2)) == [0, 19]


def test_a_file_is_not_read_again_for_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "x.mp4")
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("the file was read"))
    assert read_frame_numbers(frames(Video(digest="d", load=lambda: path), count=2)) == [0, 19]
    path.unlink()
    with pytest.raises(MediaError, match=r"x\.mp4"):
        frames(Video(digest="d", load=lambda: path), count=2)


def test_a_cached_part_is_decoded_once() -> None:
    kept: dict[str, Any] = {}
    loads = []

    def keep(how: str, make: Callable[[], Any]) -> Any:
        if how not in kept:
            kept[how] = make()
        return kept[how]

    def load() -> Any:
        loads.append(1)
        return np.zeros(100, np.float32), 8000

    part = Audio(digest="d", load=load, keep=keep)
    assert waveform(part, rate_hz=8000) is waveform(part, rate_hz=8000)
    waveform(part, rate_hz=16_000)
    assert len(loads) == 2, "another rate is another thing"


@pytest.mark.parametrize(
    ("part", "look"),
    [
        (Image, picture),
        (Audio, lambda part: waveform(part, rate_hz=8000)),
        (Video, lambda part: frames(part, count=2)),
    ],
)
def test_whatever_a_loader_raises_is_bad_media_with_its_source(
    part: Any, look: Callable[[Media], Any]
) -> None:
    def load() -> Any:
        raise OSError("the disk is gone")

    with pytest.raises(MediaError, match="the disk is gone") as caught:
        look(part(digest="d", load=load, source="x.bin"))
    assert caught.value.where == "x.bin"

    def lacks() -> Any:
        raise MissingPackage.of("codec", "this")

    with pytest.raises(MissingPackage):
        look(part(digest="d", load=lacks))


@pytest.mark.parametrize("value", [5, None, {}])
def test_what_is_no_medium_at_all_is_refused(value: Any) -> None:
    with pytest.raises(MediaError):
        waveform(Audio(digest="d", load=lambda: value), rate_hz=8000)
    with pytest.raises(MediaError):
        frames(Video(digest="d", load=lambda: value), count=1)


def test_an_empty_list_of_frames_is_refused() -> None:
    with pytest.raises(MediaError, match="no frames"):
        frames(Video(digest="d", load=list), count=1)
