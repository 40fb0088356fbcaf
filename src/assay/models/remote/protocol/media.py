"""Base64 encoding of images, audio and video: once per part, in threads.

The encoded data is cached with the part (`part.keep`), so the engine counts it in its memory budget, prepares it ahead
of time and drops it after the last request that needs it.
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
from typing import Any, TypeVar

from assay.core.errors import MediaError
from assay.core.records.messages import Audio, Image, Media, Video
from assay.media import frames, picture, waveform
from assay.media.media_files import open_media_file
from assay.models.remote.protocol.json_writer import RawString

__all__ = [
    "EncodedMedia",
    "MediaEncoding",
    "encode_audio",
    "encode_image",
    "encode_video_file",
    "encode_video_frames",
    "prepare_media",
    "write_in_thread",
]

T = TypeVar("T")

_RATE_HZ = 16_000
_MIN_SIDE_PIXELS = 16
_SUPPORTED_FORMATS = ("PNG", "JPEG", "WEBP")


@dataclass(frozen=True, slots=True)
class EncodedMedia:
    """A media part in base64."""

    mime: str
    nbytes: int
    """Memory that the encoded data takes."""

    data: bytes

    @property
    def text(self) -> RawString:
        """The base64 text."""
        return RawString((self.data,))

    @property
    def url(self) -> RawString:
        """A data URL."""
        return RawString((f"data:{self.mime};base64,".encode(), self.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaEncoding:
    """How images and videos are encoded."""

    image_format: str = "original"
    """`original` sends the unchanged file if possible, else PNG."""

    max_pixels: int | None = None
    max_bytes: int = 20 * 2**20
    max_frames: int = 10
    fps: float | None = None
    whole_videos: bool = False


def encode_image(part: Image, media: MediaEncoding) -> EncodedMedia:
    """Encode an image; scale it down only if it exceeds the limits.

    Raises:
        MediaError: It cannot be read.
    """

    def make() -> EncodedMedia:
        found = (
            _encode_unchanged(part.file(), media) if part.file and media.image_format == "original" else None
        )
        return found or _encode_within_limits(picture(part), media, part.source)

    how = f"base64:{media.image_format}:{media.max_pixels}:{media.max_bytes}"
    return part.keep(how, make)  # type: ignore[no-any-return]


def encode_video_frames(part: Video, media: MediaEncoding) -> list[EncodedMedia]:
    """Encode evenly spaced frames of a video."""

    def make() -> list[EncodedMedia]:
        count = None if media.fps else media.max_frames
        clip = frames(part, count=count, fps=media.fps, max_frames=media.max_frames)
        return [_encode_within_limits(frame, media, part.source) for frame in clip.frames]

    how = f"base64:{media.image_format}:{media.max_pixels}:{media.max_bytes}:{media.max_frames}:{media.fps}"
    return part.keep(how, make)  # type: ignore[no-any-return]


def encode_video_file(part: Video) -> EncodedMedia:
    """Encode a video file unchanged, for servers that accept video files."""

    def make() -> EncodedMedia:
        try:
            loaded = part.load()
        except (OSError, ValueError) as error:
            raise MediaError(f"cannot read the video: {error}", where=part.source) from None
        if isinstance(loaded, (list, tuple)):
            raise MediaError(
                "the video consists of frames and has no file: remove video=file", where=part.source
            )
        data = open_media_file(loaded, where=part.source).read()
        return _encode_base64(data, "video/webm" if data[:4] == b"\x1aE\xdf\xa3" else "video/mp4")

    return part.keep("base64:file", make)  # type: ignore[no-any-return]


def encode_audio(part: Audio) -> EncodedMedia:
    """Encode audio as WAV: one channel, 16 bits."""

    def make() -> EncodedMedia:
        import numpy

        samples = waveform(part, rate_hz=_RATE_HZ)
        whole = numpy.rint(numpy.clip(samples, -1.0, 1.0) * 32767).astype("<i2")
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setnchannels(1)
            writer.setsampwidth(2)
            writer.setframerate(_RATE_HZ)
            writer.writeframes(whole.tobytes())
        return _encode_base64(file.getvalue(), "audio/wav")

    return part.keep("base64:wav", make)  # type: ignore[no-any-return]


def prepare_media(part: Media, media: MediaEncoding) -> None:
    """Encode a part ahead of its call."""
    match part:
        case Image():
            encode_image(part, media)
        case Audio():
            encode_audio(part)
        case Video():
            encode_video_file(part) if media.whole_videos else encode_video_frames(part, media)


async def write_in_thread(write: Callable[..., T], *arguments: Any) -> T:
    """Write a request body with media, or measure it, in a thread; the pool is small so that network I/O keeps its CPU time."""
    return await asyncio.get_running_loop().run_in_executor(_get_writer_pool(), write, *arguments)


@cache
def _get_writer_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(2, min(8, (os.cpu_count() or 2) // 2)), thread_name_prefix="assay-writing")


def _encode_unchanged(data: bytes, media: MediaEncoding) -> EncodedMedia | None:
    """Encode an image file unchanged if its format and size allow it; decode it once to check that it is valid."""
    from PIL import Image as Pictures

    try:
        with Pictures.open(io.BytesIO(data)) as image:
            kind, pixels = str(image.format), image.width * image.height
            if (
                kind not in _SUPPORTED_FORMATS
                or len(data) * 4 / 3 > media.max_bytes
                or getattr(image, "is_animated", False)
            ):
                return None
            if media.max_pixels and pixels > media.max_pixels:
                return None
            image.load()
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Pictures.DecompressionBombError):
        return None  # decoding reports the error
    return _encode_base64(data, f"image/{kind.lower()}")


def _encode_base64(data: bytes, mime: str) -> EncodedMedia:
    text = base64.b64encode(data)
    return EncodedMedia(mime, len(text), text)


def _encode_within_limits(image: Any, media: MediaEncoding, where: str) -> EncodedMedia:
    if media.max_pixels and image.width * image.height > media.max_pixels:
        image = _scale(image, (media.max_pixels / (image.width * image.height)) ** 0.5)
    while True:
        data = _compress(image, media.image_format)
        if len(data) * 4 / 3 <= media.max_bytes:
            return _encode_base64(
                data, f"image/{'png' if media.image_format == 'original' else media.image_format}"
            )
        if min(image.size) <= _MIN_SIDE_PIXELS:
            raise MediaError("the image cannot be made small enough to send", where=where)
        image = _scale(image, 0.75)


def _scale(image: Any, factor: float) -> Any:
    return image.resize([max(1, int(side * factor)) for side in image.size])


def _compress(image: Any, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "jpeg":
        image.convert("RGB").save(file, format="JPEG", quality=95)
    elif kind == "webp":
        image.convert("RGB").save(file, format="WEBP", lossless=True)
    else:
        plain = image.mode in ("RGB", "RGBA", "L", "1", "P", "LA")
        (image if plain else image.convert("RGB")).save(file, format="PNG", compress_level=1)
    return file.getvalue()
