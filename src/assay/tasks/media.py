"""Pictures, sounds and videos as parts of a prompt: named by content, decoded when needed.

Whatever a task's helper returns (a PIL image, a path, bytes, a column of the `datasets` library, a mapping
with `url`) becomes an `Image`, `Audio` or `Video`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import BadData
from assay.core.messages import Audio, Image, Media, Video

__all__ = ["audio_part", "image_part", "media_part", "video_part"]

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tiff", ".webp"}
AUDIO_SUFFIXES = {".wav", ".mp3", ".m4a", ".aac", ".flac", ".ogg", ".opus", ".webm"}


def media_part(value: Any, *, where: str = "") -> Media:
    """The part for one thing a `doc_to_visual` returned."""
    if _is_picture(value) or isinstance(value, (bytes, bytearray)):
        return image_part(value, where=where)
    if isinstance(value, Mapping):
        if "array" in value or value.get("type") == "audio":
            return audio_part(value, where=where)
        if value.get("bytes") is not None and "type" not in value:
            return image_part(value["bytes"], where=where)
        kind = value.get("type", "video")
        target = value.get("url") or value.get("path") or value.get(kind)
        return image_part(target, where=where) if kind == "image" else video_part(value, where=where)
    if isinstance(value, (str, Path)):
        suffix = Path(str(value)).suffix.lower()
        if suffix in IMAGE_SUFFIXES:
            return image_part(value, where=where)
        return audio_part(value, where=where) if suffix in AUDIO_SUFFIXES else video_part(value, where=where)
    raise BadData(f"{type(value).__name__} is not a picture, a sound or a video", where=where)


def image_part(value: Any, *, where: str = "") -> Image:
    """A picture from a PIL image, a path or the bytes of a file."""
    if _is_picture(value):
        digest = hashlib.sha256(f"{value.mode}:{value.size[0]}x{value.size[1]}:".encode() + value.tobytes())
        return Image(digest=digest.hexdigest(), load=lambda: value, source="picture")
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
        return Image(
            digest=hashlib.sha256(data).hexdigest(), load=lambda: _decode(data, where), source="bytes"
        )
    path = _existing(value, where)
    return Image(
        digest=_file_digest(path), load=lambda: _decode(path.read_bytes(), str(path)), source=str(path)
    )


def audio_part(value: Any, *, where: str = "") -> Audio:
    """A sound from a `{array, sampling_rate}` mapping or a path."""
    if isinstance(value, Mapping) and "array" in value:
        import numpy

        samples = numpy.asarray(value["array"], dtype=numpy.float32)
        rate_hz = int(value.get("sampling_rate", 16_000))
        digest = hashlib.sha256(f"{rate_hz}:".encode() + samples.tobytes()).hexdigest()
        return Audio(
            digest=digest, load=lambda: (samples, rate_hz), source=str(value.get("path") or "samples")
        )
    target = (value.get("url") or value.get("path")) if isinstance(value, Mapping) else value
    path = _existing(target, where)
    return Audio(digest=_file_digest(path), load=lambda: path, source=str(path))


def video_part(value: Any, *, where: str = "") -> Video:
    """A video from a path, or a mapping with `url`/`path` and a start and end in seconds."""
    given = value if isinstance(value, Mapping) else {"url": value}
    path = _existing(given.get("url") or given.get("path") or given.get("video"), where)
    start_s, end_s = (
        given.get("video_start", given.get("start_time")),
        given.get("video_end", given.get("end_time")),
    )
    return Video(digest=_file_digest(path), load=lambda: path, source=str(path), start_s=start_s, end_s=end_s)


def _is_picture(value: Any) -> bool:
    return hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size")


def _decode(data: bytes, where: str) -> Any:
    from PIL import Image as Pictures
    from PIL import UnidentifiedImageError

    try:
        picture = Pictures.open(io.BytesIO(data))
        picture.load()
    except (
        UnidentifiedImageError,
        Pictures.DecompressionBombError,
        OSError,
        ValueError,
        SyntaxError,
    ) as error:
        raise BadData(f"the picture cannot be read: {error}", where=where) from None
    return picture


def _existing(value: Any, where: str) -> Path:
    shown = f"{value!s:.80}{'…' if len(str(value)) > 80 else ''}"
    try:
        path = Path(str(value)).expanduser()
        if path.is_file():
            return path
    except (OSError, RuntimeError, ValueError):  # a name no file can have
        pass
    raise BadData(f"the media file `{shown}` is not there", where=where)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
