"""Convert values of task code to media parts of a prompt, identified by content hash and decoded when needed.

A PIL image, a path, bytes, a URL, an array, a list of frames, a column of the `datasets` library or a mapping with
`url` becomes an `Image`, `Audio` or `Video`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.core.errors import MediaError
from assay.core.records.messages import Audio, Image, Media, Video
from assay.media.audio import decode_audio, samples_from_array
from assay.media.images import count_pixel_bytes, decode_image, image_from_array, is_image
from assay.media.media_files import MediaFile, open_media_file

__all__ = ["to_audio_part", "to_image_part", "to_media_part", "to_video_part"]

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tiff", ".webp"}
AUDIO_SUFFIXES = {".wav", ".mp3", ".m4a", ".aac", ".flac", ".ogg", ".opus", ".webm"}


def to_media_part(value: Any, *, where: str = "") -> Media:
    """Convert a value that `doc_to_visual` returned."""
    if is_image(value) or isinstance(value, (bytes, bytearray)):
        return to_image_part(value, where=where)
    if isinstance(value, Mapping):
        return _part_from_mapping(value, where)
    if isinstance(value, (str, Path)):
        return _CONVERTERS[_media_kind(value)](value, where=where)
    if hasattr(value, "ndim"):
        return (to_video_part if value.ndim == 4 else to_image_part)(value, where=where)
    if isinstance(value, Sequence) and value and all(_is_frame(one) for one in value):
        return to_video_part(value, where=where)
    if hasattr(value, "get_all_samples"):
        return to_audio_part(value, where=where)
    raise MediaError(f"{type(value).__name__} is not an image, an audio clip or a video", where=where)


def _part_from_mapping(value: Mapping[str, Any], where: str) -> Media:
    """Convert a mapping with a type, or a value of a `datasets` media column, decoded or not."""
    if "array" in value or value.get("type") == "audio":
        return to_audio_part(value, where=where)
    if "type" not in value and "url" not in value and "bytes" in value:
        kind = _media_kind(value.get("path") or "", unknown="image")
        return _CONVERTERS[kind](value, where=where)
    if value.get("type", "video") == "image":
        return to_image_part(value, where=where)
    return to_video_part(value, where=where)


def to_image_part(value: Any, *, where: str = "") -> Image:
    """Convert a PIL image, an array, a path, a URL or the bytes of a file to an image part."""
    value = _unwrap_mapping(value, "image")
    if hasattr(value, "ndim"):
        value = image_from_array(value, where=where)
    if is_image(value):
        return Image(
            digest=_digest_picture(value),
            load=lambda: value,
            source="picture",
            held_bytes=count_pixel_bytes(value),
        )
    source = open_media_file(value, where=where)
    return Image(
        digest=source.digest,
        load=lambda: decode_image(source),
        source=source.name,
        held_bytes=_count_held_bytes(source),
        file=source.read,
    )


def to_audio_part(value: Any, *, where: str = "") -> Audio:
    """Convert `{array, sampling_rate}`, `(samples, rate)`, a path, a URL or the bytes of a file to an audio part."""
    source = getattr(value, "encoded", None)
    if not isinstance(source, MediaFile):
        given = _audio_from_samples(value, where)
        if given is not None:
            return given
        source = open_media_file(_unwrap_mapping(value, "audio"), where=where)
    return Audio(
        digest=source.digest,
        load=lambda: decode_audio(source),
        source=source.name,
        held_bytes=_count_held_bytes(source),
    )


def to_video_part(value: Any, *, where: str = "") -> Video:
    """Convert a path, a URL, bytes or frames to a video part. A mapping may add a start and an end in seconds."""
    given = value if isinstance(value, Mapping) else {}
    start_s, end_s = (
        _read_seconds(given, ("video_start", "start_time"), where),
        _read_seconds(given, ("video_end", "end_time"), where),
    )
    content = _unwrap_mapping(value, "video")
    if _is_frames(content):
        pictures = [one if is_image(one) else image_from_array(one, where=where) for one in content]
        digest = hashlib.sha256("".join(_digest_picture(one) for one in pictures).encode()).hexdigest()
        held = sum(count_pixel_bytes(one) for one in pictures)
        return Video(
            digest=digest, load=lambda: pictures, source=f"{len(pictures)} frames", held_bytes=held,
            start_s=start_s, end_s=end_s,
        )  # fmt: skip
    source = open_media_file(content, where=where)
    return Video(
        digest=source.digest, load=lambda: source.path or source.read(), source=source.name,
        held_bytes=_count_held_bytes(source), start_s=start_s, end_s=end_s,
    )  # fmt: skip


_CONVERTERS: Mapping[str, Callable[..., Media]] = {
    "image": to_image_part,
    "audio": to_audio_part,
    "video": to_video_part,
}


def _media_kind(value: Any, *, unknown: str = "video") -> str:
    """Return the kind of media of a path or URL, by its suffix."""
    name = str(value)
    if name.startswith("data:"):
        kind = name[5:].partition("/")[0]
        return kind if kind in _CONVERTERS else unknown
    path = urlsplit(name).path if name.startswith(("http://", "https://", "file:")) else name
    suffix = Path(path).suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    if suffix in AUDIO_SUFFIXES:
        return "audio"
    return "video" if suffix else unknown


def _unwrap_mapping(value: Any, kind: str) -> Any:
    """Return the content of a mapping: `bytes`, `url`, `path`, or the key named like the kind, in this order."""
    while isinstance(value, Mapping):
        found = next(
            (value[key] for key in ("bytes", "url", "path", kind) if value.get(key) is not None), None
        )
        if found is value or found is None:
            return None
        value = found
    return value


def _audio_from_samples(value: Any, where: str) -> Audio | None:
    """Convert audio samples. Return None for other values."""
    if hasattr(value, "get_all_samples"):  # the torchcodec decoder of `datasets` 4
        value = {"array": value["array"], "sampling_rate": value["sampling_rate"]}
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        value = {"array": value[0], "sampling_rate": value[1]}
    if not (isinstance(value, Mapping) and "array" in value):
        return None
    samples = samples_from_array(value["array"], where=where)
    rate_hz = int(value.get("sampling_rate") or 16_000)
    return Audio(
        digest=hashlib.sha256(f"{rate_hz}:".encode() + samples.tobytes()).hexdigest(),
        load=lambda: (samples, rate_hz),
        source=str(value.get("path") or "samples"),
        held_bytes=samples.nbytes,
    )


def _read_seconds(given: Mapping[str, Any], keys: Sequence[str], where: str) -> float | None:
    for key in keys:
        if given.get(key) is not None:
            try:
                return float(given[key])
            except (TypeError, ValueError):
                raise MediaError(
                    f"`{key}` must be a number of seconds, not {given[key]!r:.40}", where=where
                ) from None
    inner = given.get("url") or given.get("video")
    return _read_seconds(inner, keys, where) if isinstance(inner, Mapping) and inner is not given else None


def _is_frame(value: Any) -> bool:
    return is_image(value) or getattr(value, "ndim", 0) in (2, 3)


def _is_frames(value: Any) -> bool:
    if getattr(value, "ndim", 0) == 4:
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(_is_frame(one) for one in value)


def _digest_picture(picture: Any) -> str:
    try:
        pixels = picture.tobytes()
    except (OSError, ValueError, SyntaxError) as error:  # a helper opened it without reading the pixels
        raise MediaError(
            f"the picture cannot be read: {error}", where=str(getattr(picture, "filename", ""))
        ) from None
    head = f"{picture.mode}:{picture.size[0]}x{picture.size[1]}:".encode()
    return hashlib.sha256(head + pixels).hexdigest()


def _count_held_bytes(source: MediaFile) -> int:
    return 0 if source.data is None else len(source.data)
