"""Save images, audio and video as files that a person can open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.core.records.messages import Audio, Image, Media
from assay.media import picture
from assay.media.audio import encode_wav

__all__ = ["save_media"]


def save_media(part: Media, folder: Path) -> str:
    """Save a media part in a folder, once; return its kind and path as text."""
    name = "".join(character if character.isalnum() else "-" for character in part.digest)[:40]
    if isinstance(part, Image):
        path = folder / f"{name}.png"
        if not path.exists():
            picture(part).save(path)
        return f"image: {path}"
    if isinstance(part, Audio):
        path = folder / f"{name}.wav"
        if not path.exists():
            path.write_bytes(encode_wav(*part.load()))
        return f"audio: {path}"
    times = "" if part.start_s is None else f", from {part.start_s} s"
    times += "" if part.end_s is None else f", to {part.end_s} s"
    return f"video: {_video(part.load(), folder / name)}{times}"


def _video(loaded: Any, place: Path) -> Path:
    """Return the path of a video: its own file, a new file with its bytes, or a folder with its frames."""
    if isinstance(loaded, (str, Path)):
        return Path(loaded)
    if isinstance(loaded, bytes):
        file = place.with_suffix(".mp4")
        file.write_bytes(loaded)
        return file
    place.mkdir(exist_ok=True)
    for number, frame in enumerate(loaded):
        frame.save(place / f"{number:04}.png")
    return place
