from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.making_media import make_png, make_wav, read_frame_numbers, write_video

from assay.core.errors import MediaError, MissingPackage
from assay.core.installation import format_install_command
from assay.media import video
from assay.media.media_files import open_media_file
from assay.media.video import FrameSelection, extract_frames, select_frames, spread_evenly

pytest.importorskip("av", reason="assay-harness[media] is not installed")

TIMES = [number / 10 for number in range(20)]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (FrameSelection(), list(range(20))),
        (FrameSelection(count=1), [0]),
        (FrameSelection(count=2), [0, 19]),
        (FrameSelection(count=4), [0, 6, 12, 19]),
        (FrameSelection(count=100), list(range(20))),
        (FrameSelection(fps=1), [0, 10]),
        (FrameSelection(fps=4), [0, 2, 5, 7, 10, 12, 15, 17]),
        (FrameSelection(fps=1000), list(range(20))),
        (FrameSelection(fps=4, max_frames=3), [0, 7, 17]),
        (FrameSelection(max_frames=2), [0, 19]),
        (FrameSelection(start_s=1.0), list(range(10, 20))),
        (FrameSelection(end_s=0.45), [0, 1, 2, 3, 4]),
        (FrameSelection(count=2, start_s=0.5, end_s=1.0), [5, 10]),
        (FrameSelection(fps=2, start_s=0.3, end_s=1.4), [3, 8, 13]),
        (FrameSelection(start_s=0.52, end_s=0.58), [5]),
        (FrameSelection(start_s=50.0), []),
        (FrameSelection(start_s=1.0, end_s=0.5), []),
    ],
    ids=str,
)
def test_frames_are_picked_by_count_rate_and_stretch(wish: FrameSelection, expected: list[int]) -> None:
    assert select_frames(TIMES, wish) == expected


@pytest.mark.parametrize("total", range(12))
@pytest.mark.parametrize("count", [0, 1, 2, 5, 11, 30])
def test_evenly_spread_means_first_and_last_and_never_twice(total: int, count: int) -> None:
    found = spread_evenly(total, count)
    assert len(found) == len(set(found)) == min(total, count)
    assert found == sorted(found)
    if count > 1 and total > 0:
        assert (found[0], found[-1]) == (0, total - 1)


@pytest.mark.parametrize("name", ["x.mp4", "x.avi", "x.mkv"])
def test_exactly_the_frames_wanted_are_cut_from_a_file(tmp_path: Path, name: str) -> None:
    path = write_video(tmp_path / name)
    for source in (open_media_file(path), open_media_file(path.read_bytes())):
        assert read_frame_numbers(extract_frames(source, FrameSelection())) == list(range(20))
        some = extract_frames(source, FrameSelection(count=4))
        assert (read_frame_numbers(some), some.frames[0].size) == ([0, 6, 12, 19], (64, 48))
        assert some.times_s == pytest.approx([0.0, 0.6, 1.2, 1.9], abs=0.01)
        assert read_frame_numbers(extract_frames(source, FrameSelection(fps=2, start_s=0.5, end_s=1.5))) == [
            5,
            10,
            15,
        ]


@pytest.mark.parametrize("name", ["x.mp4", "x.mkv", "x.ts"])
def test_frames_out_of_order_are_sorted_by_presentation_time(tmp_path: Path, name: str) -> None:
    """Files with frames that depend on later ones hold them in another order than they are shown in."""
    import av

    if "libx264" not in av.codecs_available:
        pytest.skip("this PyAV has no encoder that puts frames out of order")
    source = open_media_file(write_video(tmp_path / name, codec="libx264", key_every=10))
    assert read_frame_numbers(extract_frames(source, FrameSelection(count=4))) == [0, 6, 12, 19]
    for number, time_s in enumerate(
        TIMES
    ):  # also frames that no other frame refers to, which are skipped otherwise
        one = FrameSelection(start_s=time_s - 0.01, end_s=time_s + 0.01)
        assert read_frame_numbers(extract_frames(source, one)) == [number]


@pytest.mark.parametrize("name", ["x.mp4", "x.avi"])
def test_frames_equal_those_of_pyav(tmp_path: Path, name: str) -> None:
    """`x.avi` is decoded without an index; the width is not a multiple of the alignment of its rows."""
    import av
    import numpy as np

    path = tmp_path / name
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 70, 50, "yuv420p"
        pixels = np.random.default_rng(0).integers(0, 255, (50, 70, 3), np.uint8)
        for number in range(5):
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.roll(pixels, number, 1), format="rgb24"))
            )
        container.mux(stream.encode(None))
    with av.open(str(path)) as container:
        expected = [frame.to_image().tobytes() for frame in container.decode(container.streams.video[0])]
    found = extract_frames(open_media_file(path), FrameSelection()).frames
    assert [frame.tobytes() for frame in found] == expected


def test_a_video_is_decoded_in_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg's own threads take much more CPU time for few frames; clips are decoded in parallel instead."""
    import av

    opened: list[Any] = []
    plain_open = av.open

    def open_and_record(*arguments: Any, **keywords: Any) -> Any:
        container = plain_open(*arguments, **keywords)
        opened.append(container.streams.video[0])
        return container

    source = open_media_file(write_video(tmp_path / "x.mp4"))
    monkeypatch.setattr(av, "open", open_and_record)
    extract_frames(source, FrameSelection(count=4))
    assert [stream.thread_type.name for stream in opened] == ["NONE"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot read the video"),
        (b"\x00" * 1000, "cannot read the video"),
        (make_wav(), "no video track"),
    ],
    ids=["empty", "zeros", "a sound"],
)
def test_a_damaged_video_is_rejected_with_its_path(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.mp4"
    path.write_bytes(data)
    with pytest.raises(MediaError, match=message) as caught:
        extract_frames(open_media_file(path), FrameSelection(count=2))
    assert caught.value.where == str(path)


def test_a_picture_is_a_video_of_one_frame() -> None:
    assert len(extract_frames(open_media_file(make_png()), FrameSelection(count=4)).frames) == 1


def test_a_cut_video_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_video(tmp_path / "x.avi")
    found = read_frame_numbers(extract_frames(open_media_file(path.read_bytes()[:-800]), FrameSelection()))
    assert found[:10] == list(range(10))
    assert len(found) < 20


def test_a_stretch_beyond_the_end_is_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "x.mp4")
    with pytest.raises(MediaError, match=r"no frame between 50\.0 and None s: it ends at 1\.90 s"):
        extract_frames(open_media_file(path), FrameSelection(start_s=50.0))


def test_titles_that_are_not_text_do_not_matter(tmp_path: Path) -> None:
    path = write_video(tmp_path / "x.avi")
    data = path.read_bytes()
    head = data.index(b"ISFT")  # the name of the program that wrote it
    path.write_bytes(data[: head + 8] + b"\xff\xfe\xe9" + data[head + 11 :])
    assert read_frame_numbers(extract_frames(open_media_file(path), FrameSelection(count=2))) == [0, 19]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(video, "import_module", missing)
    with pytest.raises(MissingPackage) as caught:
        extract_frames(open_media_file(b"x"), FrameSelection(count=2))
    assert format_install_command("media") in caught.value.hint


CLIPS = (
    Path(os.environ.get("ASSAY_SHARED", Path(__file__).parents[3] / "shared"))
    / "hub"
    / "assay"
    / "clips"
    / "videos"
)


@pytest.mark.skipif(not CLIPS.is_dir(), reason="no shared folder with clips")
def test_every_clip_is_read_whatever_its_titles_say() -> None:
    paths = sorted(CLIPS.iterdir())
    assert len(paths) == 10
    for path in paths:
        clip = extract_frames(open_media_file(path), FrameSelection(count=4))
        assert len(clip.frames) == 4, path
        assert clip.times_s[0] == 0.0
