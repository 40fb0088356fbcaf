"""Pictures, sounds and videos as parts of a prompt: named by content, decoded when needed.

Whatever a task's helper returns (a PIL image, a path, bytes, an address, an array, a list of frames, a column of the
`datasets` library, a mapping with `url`) becomes an `Image`, `Audio` or `Video`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.core.errors import MediaError
from assay.core.messages import Audio, Image, Media, Video
from assay.media.encoded import Encoded, encoded
from assay.media.pictures import decode_picture, is_picture, picture_bytes, picture_of_array
from assay.media.sounds import decode_sound, samples_of_array

__all__ = ["to_audio_part", "to_image_part", "to_media_part", "to_video_part"]

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tiff", ".webp"}
AUDIO_SUFFIXES = {".wav", ".mp3", ".m4a", ".aac", ".flac", ".ogg", ".opus", ".webm"}


def to_media_part(value: Any, *, where: str = "") -> Media:
    """The part for one thing a `doc_to_visual` returned."""
    if is_picture(value) or isinstance(value, (bytes, bytearray)):
        return to_image_part(value, where=where)
    if isinstance(value, Mapping):
        return _of_mapping(value, where)
    if isinstance(value, (str, Path)):
        return _KINDS[_media_kind(value)](value, where=where)
    if hasattr(value, "ndim"):
        return (to_video_part if value.ndim == 4 else to_image_part)(value, where=where)
    if isinstance(value, Sequence) and value and all(_is_frame(one) for one in value):
        return to_video_part(value, where=where)
    if hasattr(value, "get_all_samples"):
        return to_audio_part(value, where=where)
    raise MediaError(f"{type(value).__name__} is not a picture, a sound or a video", where=where)


def _of_mapping(value: Mapping[str, Any], where: str) -> Media:
    """A mapping that says what it is, or a column of the `datasets` library, decoded or not."""
    if "array" in value or value.get("type") == "audio":
        return to_audio_part(value, where=where)
    if "type" not in value and "url" not in value and "bytes" in value:
        kind = _media_kind(value.get("path") or "", unknown="image")
        return _KINDS[kind](value, where=where)
    if value.get("type", "video") == "image":
        return to_image_part(value, where=where)
    return to_video_part(value, where=where)


def to_image_part(value: Any, *, where: str = "") -> Image:
    """A picture from a PIL image, an array, a path, an address or the bytes of a file."""
    value = _content(value, "image")
    if hasattr(value, "ndim"):
        value = picture_of_array(value, where=where)
    if is_picture(value):
        return Image(
            digest=_digest_picture(value),
            load=lambda: value,
            source="picture",
            held_bytes=picture_bytes(value),
        )
    source = encoded(value, where=where)
    return Image(
        digest=source.digest,
        load=lambda: decode_picture(source),
        source=source.name,
        held_bytes=_held(source),
        file=source.read,
    )


def to_audio_part(value: Any, *, where: str = "") -> Audio:
    """A sound from `{array, sampling_rate}`, `(samples, rate)`, a path, an address or the bytes of a file."""
    source = getattr(value, "encoded", None)
    if not isinstance(source, Encoded):
        given = _samples(value, where)
        if given is not None:
            return given
        source = encoded(_content(value, "audio"), where=where)
    return Audio(
        digest=source.digest, load=lambda: decode_sound(source), source=source.name, held_bytes=_held(source)
    )


def to_video_part(value: Any, *, where: str = "") -> Video:
    """A video from a path, an address, bytes or frames; or a mapping with those and a start and end in seconds."""
    given = value if isinstance(value, Mapping) else {}
    start_s, end_s = (
        _seconds(given, ("video_start", "start_time"), where),
        _seconds(given, ("video_end", "end_time"), where),
    )
    content = _content(value, "video")
    if _is_frames(content):
        pictures = [one if is_picture(one) else picture_of_array(one, where=where) for one in content]
        digest = hashlib.sha256("".join(_digest_picture(one) for one in pictures).encode()).hexdigest()
        held = sum(picture_bytes(one) for one in pictures)
        return Video(
            digest=digest, load=lambda: pictures, source=f"{len(pictures)} frames", held_bytes=held,
            start_s=start_s, end_s=end_s,
        )  # fmt: skip
    source = encoded(content, where=where)
    return Video(
        digest=source.digest, load=lambda: source.path or source.read(), source=source.name,
        held_bytes=_held(source), start_s=start_s, end_s=end_s,
    )  # fmt: skip


_KINDS: Mapping[str, Callable[..., Media]] = {
    "image": to_image_part,
    "audio": to_audio_part,
    "video": to_video_part,
}


def _media_kind(value: Any, *, unknown: str = "video") -> str:
    """What a path or an address names, by its ending."""
    name = str(value)
    if name.startswith("data:"):
        kind = name[5:].partition("/")[0]
        return kind if kind in _KINDS else unknown
    path = urlsplit(name).path if name.startswith(("http://", "https://", "file:")) else name
    suffix = Path(path).suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    if suffix in AUDIO_SUFFIXES:
        return "audio"
    return "video" if suffix else unknown


def _content(value: Any, kind: str) -> Any:
    """What a mapping means by its medium: `bytes` first, then `url`, `path`, or the key named like the kind."""
    while isinstance(value, Mapping):
        found = next(
            (value[key] for key in ("bytes", "url", "path", kind) if value.get(key) is not None), None
        )
        if found is value or found is None:
            return None
        value = found
    return value


def _samples(value: Any, where: str) -> Audio | None:
    """A sound that came as samples; None when it came as anything else."""
    if hasattr(value, "get_all_samples"):  # torchcodec's decoder, what `datasets` gives since its version 4
        value = {"array": value["array"], "sampling_rate": value["sampling_rate"]}
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        value = {"array": value[0], "sampling_rate": value[1]}
    if not (isinstance(value, Mapping) and "array" in value):
        return None
    samples = samples_of_array(value["array"], where=where)
    rate_hz = int(value.get("sampling_rate") or 16_000)
    return Audio(
        digest=hashlib.sha256(f"{rate_hz}:".encode() + samples.tobytes()).hexdigest(),
        load=lambda: (samples, rate_hz),
        source=str(value.get("path") or "samples"),
        held_bytes=samples.nbytes,
    )


def _seconds(given: Mapping[str, Any], keys: Sequence[str], where: str) -> float | None:
    for key in keys:
        if given.get(key) is not None:
            try:
                return float(given[key])
            except (TypeError, ValueError):
                raise MediaError(
                    f"`{key}` must be a number of seconds, not {given[key]!r:.40}", where=where
                ) from None
    inner = given.get("url") or given.get("video")
    return _seconds(inner, keys, where) if isinstance(inner, Mapping) and inner is not given else None


def _is_frame(value: Any) -> bool:
    return is_picture(value) or getattr(value, "ndim", 0) in (2, 3)


def _is_frames(value: Any) -> bool:
    if getattr(value, "ndim", 0) == 4:
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(_is_frame(one) for one in value)


def _digest_picture(picture: Any) -> str:
    try:
        pixels = picture.tobytes()
    except (OSError, ValueError, SyntaxError) as error:  # opened by a helper, but never read
        raise MediaError(
            f"the picture cannot be read: {error}", where=str(getattr(picture, "filename", ""))
        ) from None
    head = f"{picture.mode}:{picture.size[0]}x{picture.size[1]}:".encode()
    return hashlib.sha256(head + pixels).hexdigest()


def _held(source: Encoded) -> int:
    return 0 if source.data is None else len(source.data)
