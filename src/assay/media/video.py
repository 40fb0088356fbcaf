"""Video: extracts selected frames from a file without decoding the others if possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from assay.core.errors import MediaError, MissingPackage
from assay.media.media_files import MediaFile, open_container

__all__ = ["Clip", "FrameSelection", "extract_frames", "select_frames", "spread_evenly"]

_SEEK_BY_DTS = ("mpegts", "mpeg")
"""Formats without an index, in which FFmpeg compares the position with decoding times."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Frames of a video as PIL images, and their times in seconds."""

    frames: tuple[Any, ...]
    times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSelection:
    """Which frames to extract: a number of evenly spaced ones, or a rate, of the whole video or a segment."""

    count: int | None = None
    fps: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    max_frames: int | None = None

    def __str__(self) -> str:
        return f"{self.count}:{self.fps}:{self.start_s}:{self.end_s}:{self.max_frames}"


def extract_frames(source: MediaFile, selection: FrameSelection) -> Clip:
    """Return the selected frames of a video file.

    Raises:
        MediaError: The file is empty, not a video, or has no frame in the segment.
        MissingPackage: `assay-harness[media]` is not installed.
    """
    try:
        av = import_module("av")
    except ModuleNotFoundError:
        raise MissingPackage.of("av", "decoding videos", extra="media", where=source.name) from None
    try:
        with _open_video(av, source) as container:
            index = _read_index(container) or _count_frames(av, source)
            times = index.times_s
            selected = select_frames(times, selection)
            if not selected:
                raise MediaError(_explain_no_frames(times, selection), where=source.name)
            if index.keys:
                found = dict(_decode(av, container, index, selected))
        if not index.keys:
            found = dict(_decode_sequentially(av, source, selected))
    except (av.FFmpegError, OSError, ValueError, EOFError) as error:
        raise MediaError(f"cannot read the video: {error}", where=source.name) from None
    decoded = [number for number in selected if number in found]
    if not decoded:
        raise MediaError("cannot read the video: no frame can be decoded", where=source.name)
    return Clip(tuple(found[number] for number in decoded), tuple(times[number] for number in decoded))


def select_frames(times: Sequence[float], selection: FrameSelection) -> list[int]:
    """Return the indices of the selected frames, given the (ascending) times of all frames.

    >>> select_frames([0.0, 0.1, 0.2, 0.3, 0.4], FrameSelection(count=3))
    [0, 2, 4]
    >>> select_frames([0.0, 0.1, 0.2, 0.3, 0.4], FrameSelection(fps=5, start_s=0.1))
    [1, 3]
    """
    start, end = selection.start_s or 0.0, selection.end_s if selection.end_s is not None else float("inf")
    inside = [number for number, time in enumerate(times) if start - 1e-6 <= time <= end + 1e-6]
    if not inside and times and start <= end and start > 0:
        inside = [bisect_right(times, start) - 1] if start <= times[-1] + 1 else []  # between two frames
    if inside and selection.fps:
        first, last = times[inside[0]], times[inside[-1]]
        ticks = int((last - first) * selection.fps + 1e-6) + 1
        shown = [times[number] for number in inside]
        at = {bisect_right(shown, first + tick / selection.fps + 1e-6) - 1 for tick in range(ticks)}
        inside = [inside[number] for number in sorted(at)]
    limit = min(
        (limit for limit in (selection.count, selection.max_frames) if limit is not None), default=len(inside)
    )
    return [inside[number] for number in spread_evenly(len(inside), limit)]


def spread_evenly(total: int, count: int) -> list[int]:
    """Return `count` evenly spaced indices of `total`, including the first and the last; all if there are fewer.

    >>> spread_evenly(10, 4), spread_evenly(2, 8), spread_evenly(9, 1)
    ([0, 3, 6, 9], [0, 1], [0])
    """
    if count >= total:
        return list(range(total))
    if count <= 1:
        return [0][:count]
    return [number * (total - 1) // (count - 1) for number in range(count)]


def _explain_no_frames(times: Sequence[float], selection: FrameSelection) -> str:
    if not times:
        return "cannot read the video: it has no frames"
    return f"the video has no frame between {selection.start_s} and {selection.end_s} s: it ends at {times[-1]:.2f} s"


# --- reading -----------------------------------------------------------------------------------------------


def _open_video(av: Any, source: MediaFile) -> Any:
    """Open a video with a decoder of one thread.

    Clips are decoded in parallel instead. FFmpeg's threads need up to half as much CPU time again; they decode
    frames beyond the selected ones.
    """
    container = open_container(av, source)
    if not container.streams.video:
        container.close()
        raise MediaError("cannot read the video: it has no video track", where=source.name)
    container.streams.video[0].thread_type = "NONE"
    return container


@dataclass(frozen=True, slots=True)
class _Index:
    """Presentation times of all frames in ticks of the time base, and the key frames that can be seeked to."""

    ticks: Sequence[int]
    keys: Sequence[int]
    key_seeks: Sequence[int]
    """Where to seek for each key frame: its presentation time; in MPEG streams, which are ordered by it, its decoding time."""

    tick_s: float

    @property
    def times_s(self) -> list[float]:
        return [(tick - self.ticks[0]) * self.tick_s for tick in self.ticks]


def _read_index(container: Any) -> _Index | None:
    """Return the frame index of a file from its packets, without decoding.

    None for AVI files and files in which a packet has no presentation time: seeking is not possible in them.
    """
    stream = container.streams.video[0]
    timed = container.format.name != "avi"
    packets = [
        (packet.pts, packet.dts, packet.is_keyframe)
        for packet in (container.demux(stream) if timed else ())
        if packet.size and not packet.is_discard
    ]
    ticks = {pts for pts, _, _ in packets}
    if not packets or None in ticks or len(ticks) < len(packets):
        return None
    keys = sorted((pts, dts) for pts, dts, is_key in packets if is_key)
    by_dts = container.format.name in _SEEK_BY_DTS and all(dts is not None for _, dts in keys)
    seeks = [dts if by_dts else pts for pts, dts in keys]
    return _Index(sorted(ticks), [pts for pts, _ in keys], seeks, float(stream.time_base))


def _count_frames(av: Any, source: MediaFile) -> _Index:
    """Return an index without key frames: decodes the file once."""
    with _open_video(av, source) as container:
        rate = float(container.streams.video[0].average_rate or 25)
        return _Index(range(sum(1 for _ in _iterate_frames(av, container))), (), (), 1 / rate)


def _decode(av: Any, container: Any, index: _Index, selected: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield the selected frames; seek to the last key frame before each unless the decoder is already past it.

    Frames that no other frame refers to are not decoded unless they are selected.
    """
    stream = container.streams.video[0]
    to_image = _ImageConverter(av)
    decoded: Iterator[Any] = iter(())
    needed = {index.ticks[number] for number in selected}
    position = index.ticks[0] - 1
    for number in selected:
        tick = index.ticks[number]
        key = max(bisect_right(index.keys, tick) - 1, 0)
        if index.keys[key] > position:
            container.seek(index.key_seeks[key], stream=stream)
            decoded = _iterate_frames(av, container, needed)
        for frame in decoded:
            if frame.pts is None:
                continue
            position = frame.pts
            if position == tick:
                yield number, to_image(frame)
            if position >= tick:
                break


def _decode_sequentially(av: Any, source: MediaFile, selected: Sequence[int]) -> Iterator[tuple[int, Any]]:
    left, to_image = set(selected), _ImageConverter(av)
    with _open_video(av, source) as container:
        for number, frame in enumerate(_iterate_frames(av, container)):
            if number in left:
                left.discard(number)
                yield number, to_image(frame)
            if not left:
                return


def _iterate_frames(av: Any, container: Any, needed: AbstractSet[int] | None = None) -> Iterator[Any]:
    """Yield all frames that can be decoded; damaged ones are skipped.

    `needed`: presentation times of frames; the decoder skips other frames that it does not need to decode these.
    """
    stream = container.streams.video[0]
    for packet in container.demux(stream):
        if needed is not None:
            stream.codec_context.skip_frame = "DEFAULT" if packet.pts in needed else "NONREF"
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            continue


class _ImageConverter:
    """Converts frames to PIL images.

    `frame.to_image()` sets up a conversion for each frame and copies the pixels three times instead of once.
    """

    def __init__(self, av: Any) -> None:
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._from_buffer = import_module("PIL.Image").frombuffer

    def __call__(self, frame: Any) -> Any:
        converted = self._reformatter.reformat(frame, format="rgb24")
        plane = converted.planes[0]
        if plane.line_size < 0:  # the last row comes first
            return converted.to_image()
        size = (converted.width, converted.height)
        return self._from_buffer("RGB", size, memoryview(plane), "raw", "RGB", plane.line_size, 1)
