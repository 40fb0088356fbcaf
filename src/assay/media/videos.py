"""Videos: a few frames out of a file, exactly those wanted, without decoding the rest where that can be avoided."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from assay.core.errors import MediaError, MissingPackage
from assay.media.encoded import Encoded

__all__ = ["Clip", "Wish", "cut", "evenly", "pick"]


@dataclass(frozen=True, slots=True)
class Clip:
    """Frames of a video, as PIL images, and when each is shown, in seconds from its begin."""

    frames: tuple[Any, ...]
    times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which frames: so many evenly spread, or so many per second, of the whole or of a stretch."""

    count: int | None = None
    fps: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    max_frames: int | None = None

    def __str__(self) -> str:
        return f"{self.count}:{self.fps}:{self.start_s}:{self.end_s}:{self.max_frames}"


def cut(source: Encoded, wish: Wish) -> Clip:
    """The frames of a video file that are wished for.

    Raises:
        MediaError: It is empty, not a video, or has no frame in the stretch.
        MissingPackage: `assay-harness[media]` is not installed.
    """
    try:
        av = import_module("av")
    except ModuleNotFoundError:
        raise MissingPackage.of("av", "decoding videos", extra="media", where=source.name) from None
    try:
        index = _read_index(av, source)
        times = index.times_s
        wanted = pick(times, wish)
        if not wanted:
            raise MediaError(_nothing(times, wish), where=source.name)
        found = dict(_decode(av, source, index, wanted))
    except (av.FFmpegError, OSError, ValueError, EOFError) as error:
        raise MediaError(f"the video cannot be read: {error}", where=source.name) from None
    kept = [number for number in wanted if number in found]
    if not kept:
        raise MediaError("the video cannot be read: none of its frames can be decoded", where=source.name)
    return Clip(tuple(found[number] for number in kept), tuple(times[number] for number in kept))


def pick(times: Sequence[float], wish: Wish) -> list[int]:
    """Which frames are wanted, by number, of frames shown at these times (ascending).

    >>> pick([0.0, 0.1, 0.2, 0.3, 0.4], Wish(count=3))
    [0, 2, 4]
    >>> pick([0.0, 0.1, 0.2, 0.3, 0.4], Wish(fps=5, start_s=0.1))
    [1, 3]
    """
    start, end = wish.start_s or 0.0, wish.end_s if wish.end_s is not None else float("inf")
    inside = [number for number, time in enumerate(times) if start - 1e-6 <= time <= end + 1e-6]
    if not inside and times and start <= end and start > 0:
        inside = [bisect_right(times, start) - 1] if start <= times[-1] + 1 else []  # between two frames
    if inside and wish.fps:
        first, last = times[inside[0]], times[inside[-1]]
        ticks = int((last - first) * wish.fps + 1e-6) + 1
        shown = [times[number] for number in inside]
        at = {bisect_right(shown, first + tick / wish.fps + 1e-6) - 1 for tick in range(ticks)}
        inside = [inside[number] for number in sorted(at)]
    most = min((most for most in (wish.count, wish.max_frames) if most is not None), default=len(inside))
    return [inside[number] for number in evenly(len(inside), most)]


def evenly(total: int, count: int) -> list[int]:
    """`count` of `total` positions, first and last among them; all where there are no more than that.

    >>> evenly(10, 4), evenly(2, 8), evenly(9, 1)
    ([0, 3, 6, 9], [0, 1], [0])
    """
    if count >= total:
        return list(range(total))
    if count <= 1:
        return [0][:count]
    return [number * (total - 1) // (count - 1) for number in range(count)]


def _nothing(times: Sequence[float], wish: Wish) -> str:
    if not times:
        return "the video cannot be read: it has no frames"
    return f"the video has no frame between {wish.start_s} and {wish.end_s} s: it ends at {times[-1]:.2f} s"


# --- reading -----------------------------------------------------------------------------------------------


def _open(av: Any, source: Encoded) -> Any:
    container = av.open(
        source.open(), metadata_errors="ignore"
    )  # titles that are not UTF-8 do not matter here
    if not container.streams.video:
        container.close()
        raise MediaError("the video cannot be read: it has no pictures", where=source.name)
    return container


@dataclass(frozen=True, slots=True)
class _Index:
    """When the frames of a file are shown, in ticks of its clock, and which of them can be jumped to."""

    ticks: Sequence[int]
    keys: Sequence[int]
    tick_s: float

    @property
    def times_s(self) -> list[float]:
        return [(tick - self.ticks[0]) * self.tick_s for tick in self.ticks]


def _read_index(av: Any, source: Encoded) -> _Index:
    """The index of a file, from its packets, without decoding.

    AVI does not say when a frame is shown, and in other files a packet may not. Those are decoded once to count the
    frames, and nothing can be jumped to.
    """
    with _open(av, source) as container:
        stream = container.streams.video[0]
        timed = container.format.name != "avi"
        packets = [
            (packet.pts, packet.is_keyframe)
            for packet in (container.demux(stream) if timed else ())
            if packet.size and not packet.is_discard
        ]
        ticks = {pts for pts, _ in packets}
        if packets and None not in ticks and len(ticks) == len(packets):
            return _Index(sorted(ticks), sorted(pts for pts, key in packets if key), float(stream.time_base))
    with _open(av, source) as container:
        rate = float(container.streams.video[0].average_rate or 25)
        return _Index(range(sum(1 for _ in _frames(av, container))), (), 1 / rate)


def _decode(av: Any, source: Encoded, index: _Index, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """The wanted frames, jumping to the last key frame before each unless the decoder is already past it."""
    with _open(av, source) as container:
        if not index.keys:
            yield from _in_order(av, container, wanted)
            return
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        decoded: Iterator[Any] = iter(())
        position = index.ticks[0] - 1
        for number in wanted:
            tick = index.ticks[number]
            key = index.keys[max(bisect_right(index.keys, tick) - 1, 0)]
            if key > position:
                container.seek(key, stream=stream)
                decoded = _frames(av, container)
            for frame in decoded:
                if frame.pts is None:
                    continue
                position = frame.pts
                if position == tick:
                    yield number, frame.to_image()
                if position >= tick:
                    break


def _in_order(av: Any, container: Any, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    left = set(wanted)
    for number, frame in enumerate(_frames(av, container)):
        if number in left:
            left.discard(number)
            yield number, frame.to_image()
        if not left:
            return


def _frames(av: Any, container: Any) -> Iterator[Any]:
    """Every frame that can be decoded: a damaged one costs itself."""
    for packet in container.demux(container.streams.video[0]):
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            continue
