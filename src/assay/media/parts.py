"""What adapters call: a part to pixels or samples, as the model wants them, made once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, MediaError
from assay.core.messages import Audio, Image, Media, Video
from assay.media.encoded import Encoded, encoded
from assay.media.pictures import is_picture, picture_of_array
from assay.media.sounds import decode_sound, resample, samples_of_array
from assay.media.videos import Clip, Wish, cut, evenly

__all__ = ["frames", "picture", "waveform"]


def picture(part: Image) -> Any:
    """The PIL image of a part.

    Raises:
        MediaError: It cannot be read.
    """
    loaded = _loaded(part)
    return loaded if is_picture(loaded) else picture_of_array(loaded, where=part.source)


def waveform(part: Audio, *, rate_hz: int) -> Any:
    """The samples of a part: float32, one channel, `rate_hz` of them per second.

    Raises:
        MediaError: It cannot be read.
    """

    def make() -> Any:
        loaded = _loaded(part)
        if isinstance(loaded, tuple):
            samples, from_hz = samples_of_array(loaded[0], where=part.source), int(loaded[1])
        else:
            samples, from_hz = decode_sound(_source(loaded, part))
        return resample(samples, from_hz, rate_hz)

    return part.keep(f"waveform:{rate_hz}", make)


def frames(
    part: Video, *, count: int | None = None, fps: float | None = None, max_frames: int | None = None
) -> Clip:
    """Frames of a part: `count` of them evenly spread, or `fps` per second, at most `max_frames`; or all.

    The part says itself whether it is a stretch of the file. Asking for more frames than there are gives those there are.

    Raises:
        MediaError: It cannot be read, or nothing of it lies in the stretch.
    """
    wish = Wish(count=count, fps=fps, start_s=part.start_s, end_s=part.end_s, max_frames=max_frames)

    def make() -> Clip:
        loaded = _loaded(part)
        if isinstance(loaded, Sequence) and not isinstance(loaded, (str, bytes)):
            return _of_list(loaded, wish, part.source)
        return cut(_source(loaded, part), wish)

    return part.keep(f"frames:{wish}", make)  # type: ignore[no-any-return]


def _of_list(given: Sequence[Any], wish: Wish, where: str) -> Clip:
    """Frames that came as such: nobody knows their times, so they count as one per second."""
    most = min((most for most in (wish.count, wish.max_frames) if most is not None), default=len(given))
    numbers = evenly(len(given), most)
    if not numbers:
        raise MediaError("the video has no frames", where=where)
    pictures = [given[number] for number in numbers]
    return Clip(
        tuple(one if is_picture(one) else picture_of_array(one, where=where) for one in pictures),
        tuple(float(number) for number in numbers),
    )


def _loaded(part: Media) -> Any:
    """What the part loads; whatever a foreign loader raises becomes `MediaError`."""
    try:
        return part.load()
    except AssayError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:
        kind = type(part).__name__.lower()
        raise MediaError(f"the {kind} cannot be read: {error}", where=part.source) from None


def _source(loaded: Any, part: Media) -> Encoded:
    if isinstance(loaded, Encoded):
        return loaded
    if isinstance(loaded, (str, Path, bytes, bytearray)):
        return encoded(loaded, where=part.source)
    raise MediaError(f"a {type(loaded).__name__} is not a {type(part).__name__.lower()}", where=part.source)
