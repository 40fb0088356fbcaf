"""Pictures, sounds and videos as text in a call: encoded once per medium, in threads, and dropped with it.

What is made of a part is kept with the part (`part.keep`), so the engine's memory budget counts it, has it made ahead
and forgets it when the last request that needs it has its outcome.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from assay.core.errors import BadMedia
from assay.core.messages import Audio, Image, Media, Video
from assay.media import frames, picture, waveform
from assay.media.encoded import encoded
from assay.models.remote.bulk import Bulk

__all__ = [
    "Look",
    "Packed",
    "pack_image",
    "pack_sound",
    "pack_video",
    "pack_video_file",
    "prepare",
    "write_aside",
]

_RATE_HZ = 16_000
_SMALLEST_SIDE = 16
_SENT = ("PNG", "JPEG", "WEBP")


@dataclass(frozen=True, slots=True)
class Packed:
    """A medium in base64."""

    mime: str
    nbytes: int
    """What it takes: for whoever counts memory."""

    data: bytes

    @property
    def text(self) -> Bulk:
        """The medium alone."""
        return Bulk((self.data,))

    @property
    def url(self) -> Bulk:
        """The whole medium as an address."""
        return Bulk((f"data:{self.mime};base64,".encode(), self.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How pictures and videos are shown."""

    image_format: str = "original"
    """`original` sends a file as it is where it can, else as PNG."""

    max_pixels: int | None = None
    max_bytes: int = 20 * 2**20
    max_frames: int = 10
    fps: float | None = None
    whole_videos: bool = False


def pack_image(part: Image, look: Look) -> Packed:
    """A picture, no larger than allowed; the same pixels where it is small enough.

    Raises:
        BadMedia: It cannot be read.
    """

    def make() -> Packed:
        found = _as_it_is(part.file(), look) if part.file and look.image_format == "original" else None
        return found or _packed(picture(part), look, part.source)

    how = f"base64:{look.image_format}:{look.max_pixels}:{look.max_bytes}"
    return part.keep(how, make)  # type: ignore[no-any-return]


def pack_video(part: Video, look: Look) -> list[Packed]:
    """Frames of a video, evenly spread."""

    def make() -> list[Packed]:
        count = None if look.fps else look.max_frames
        clip = frames(part, count=count, fps=look.fps, max_frames=look.max_frames)
        return [_packed(frame, look, part.source) for frame in clip.frames]

    how = f"base64:{look.image_format}:{look.max_pixels}:{look.max_bytes}:{look.max_frames}:{look.fps}"
    return part.keep(how, make)  # type: ignore[no-any-return]


def pack_video_file(part: Video) -> Packed:
    """A video as the file it is, for servers that take it whole."""

    def make() -> Packed:
        try:
            loaded = part.load()
        except (OSError, ValueError) as error:
            raise BadMedia(f"cannot read the video: {error}", where=part.source) from None
        if isinstance(loaded, (list, tuple)):
            raise BadMedia("frames are no video file: leave out video=file", where=part.source)
        data = encoded(loaded, where=part.source).read()
        return _base64(data, "video/webm" if data[:4] == b"\x1aE\xdf\xa3" else "video/mp4")

    return part.keep("base64:file", make)  # type: ignore[no-any-return]


def pack_sound(part: Audio) -> Packed:
    """A sound as WAV: one channel, 16 bits."""

    def make() -> Packed:
        import numpy

        samples = waveform(part, rate_hz=_RATE_HZ)
        whole = numpy.rint(numpy.clip(samples, -1.0, 1.0) * 32767).astype("<i2")
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setnchannels(1)
            writer.setsampwidth(2)
            writer.setframerate(_RATE_HZ)
            writer.writeframes(whole.tobytes())
        return _base64(file.getvalue(), "audio/wav")

    return part.keep("base64:wav", make)  # type: ignore[no-any-return]


def prepare(part: Media, look: Look) -> None:
    """Make what a call will need of a part, ahead of it."""
    match part:
        case Image():
            pack_image(part, look)
        case Audio():
            pack_sound(part)
        case Video():
            pack_video_file(part) if look.whole_videos else pack_video(part, look)


async def write_aside(write: Callable[..., bytes], *arguments: Any) -> bytes:
    """Write a call with media in a thread: a few at a time, so that who sends and receives is not crowded out."""
    return await asyncio.get_running_loop().run_in_executor(_writers(), write, *arguments)


@cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(2, min(8, (os.cpu_count() or 2) // 2)), thread_name_prefix="assay-writing")


def _as_it_is(data: bytes, look: Look) -> Packed | None:
    """A file that every server can read and that is small enough, unchanged; decoded once to see that it is whole."""
    from PIL import Image as Pictures

    try:
        with Pictures.open(io.BytesIO(data)) as image:
            kind, pixels = str(image.format), image.width * image.height
            if (
                kind not in _SENT
                or len(data) * 4 / 3 > look.max_bytes
                or getattr(image, "is_animated", False)
            ):
                return None
            if look.max_pixels and pixels > look.max_pixels:
                return None
            image.load()
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Pictures.DecompressionBombError):
        return None  # whoever decodes it says what is wrong
    return _base64(data, f"image/{kind.lower()}")


def _base64(data: bytes, mime: str) -> Packed:
    text = base64.b64encode(data)
    return Packed(mime, len(text), text)


def _packed(image: Any, look: Look, where: str) -> Packed:
    if look.max_pixels and image.width * image.height > look.max_pixels:
        image = _shrunk(image, (look.max_pixels / (image.width * image.height)) ** 0.5)
    while True:
        data = _written(image, look.image_format)
        if len(data) * 4 / 3 <= look.max_bytes:
            return _base64(data, f"image/{'png' if look.image_format == 'original' else look.image_format}")
        if min(image.size) <= _SMALLEST_SIDE:
            raise BadMedia("the picture does not become small enough to be sent", where=where)
        image = _shrunk(image, 0.75)


def _shrunk(image: Any, factor: float) -> Any:
    return image.resize([max(1, int(side * factor)) for side in image.size])


def _written(image: Any, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "jpeg":
        image.convert("RGB").save(file, format="JPEG", quality=95)
    elif kind == "webp":
        image.convert("RGB").save(file, format="WEBP", lossless=True)
    else:
        plain = image.mode in ("RGB", "RGBA", "L", "1", "P", "LA")
        (image if plain else image.convert("RGB")).save(file, format="PNG", compress_level=1)
    return file.getvalue()
