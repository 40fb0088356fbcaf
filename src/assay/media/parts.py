"""Functions for model adapters: decode a media part once, in the form the model needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, MediaError
from assay.core.records.messages import Audio, Image, Media, Video
from assay.media.audio import decode_audio, resample, samples_from_array
from assay.media.images import image_from_array, is_image
from assay.media.media_files import MediaFile, open_media_file
from assay.media.video import Clip, FrameSelection, extract_frames, spread_evenly

__all__ = ["frames", "picture", "waveform"]


def picture(part: Image) -> Any:
    """Return the PIL image of a part.

    Raises:
        MediaError: It cannot be read.
    """
    loaded = _load(part)
    return loaded if is_image(loaded) else image_from_array(loaded, where=part.source)


def waveform(part: Audio, *, rate_hz: int) -> Any:
    """Return the samples of a part: float32, mono, at `rate_hz`.

    Raises:
        MediaError: It cannot be read.
    """

    def decode() -> Any:
        loaded = _load(part)
        if isinstance(loaded, tuple):
            samples, from_hz = samples_from_array(loaded[0], where=part.source), int(loaded[1])
        else:
            samples, from_hz = decode_audio(_to_media_file(loaded, part))
        return resample(samples, from_hz, rate_hz)

    return part.keep(f"waveform:{rate_hz}", decode)


def frames(
    part: Video, *, count: int | None = None, fps: float | None = None, max_frames: int | None = None
) -> Clip:
    """Return frames of a part: `count` evenly spaced ones, or `fps` per second, at most `max_frames`; by default all.

    The part defines the segment of the file. If there are fewer frames than requested, all are returned.

    Raises:
        MediaError: The file cannot be read, or has no frame in the segment.
    """
    selection = FrameSelection(
        count=count, fps=fps, start_s=part.start_s, end_s=part.end_s, max_frames=max_frames
    )

    def decode() -> Clip:
        loaded = _load(part)
        if isinstance(loaded, Sequence) and not isinstance(loaded, (str, bytes)):
            return _select_from_list(loaded, selection, part.source)
        return extract_frames(_to_media_file(loaded, part), selection)

    return part.keep(f"frames:{selection}", decode)  # type: ignore[no-any-return]


def _select_from_list(given: Sequence[Any], selection: FrameSelection, where: str) -> Clip:
    """Select from a list of frames without times, which count as one per second."""
    limit = min(
        (limit for limit in (selection.count, selection.max_frames) if limit is not None), default=len(given)
    )
    numbers = spread_evenly(len(given), limit)
    if not numbers:
        raise MediaError("the video has no frames", where=where)
    images = [given[number] for number in numbers]
    return Clip(
        tuple(one if is_image(one) else image_from_array(one, where=where) for one in images),
        tuple(float(number) for number in numbers),
    )


def _load(part: Media) -> Any:
    """Load a part; errors of the loader become `MediaError`."""
    try:
        return part.load()
    except AssayError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:
        kind = type(part).__name__.lower()
        raise MediaError(f"cannot read the {kind}: {error}", where=part.source) from None


def _to_media_file(loaded: Any, part: Media) -> MediaFile:
    if isinstance(loaded, MediaFile):
        return loaded
    if isinstance(loaded, Path) and part.digest:  # not read once more for its checksum
        return MediaFile(digest=part.digest, name=str(loaded), path=loaded)
    if isinstance(loaded, (str, Path, bytes, bytearray)):
        return open_media_file(loaded, where=part.source)
    raise MediaError(
        f"expected {type(part).__name__.lower()} data, got {type(loaded).__name__}", where=part.source
    )
