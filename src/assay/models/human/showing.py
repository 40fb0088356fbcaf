"""Pictures, sounds and videos as files somebody can open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.core.messages import Audio, Image, Media
from assay.media import picture
from assay.media.sounds import as_wave_file

__all__ = ["save_medium"]


def save_medium(part: Media, folder: Path) -> str:
    """Write a medium into a folder, once; what it is and where, in words."""
    name = "".join(character if character.isalnum() else "-" for character in part.digest)[:40]
    if isinstance(part, Image):
        path = folder / f"{name}.png"
        if not path.exists():
            picture(part).save(path)
        return f"picture: {path}"
    if isinstance(part, Audio):
        path = folder / f"{name}.wav"
        if not path.exists():
            path.write_bytes(as_wave_file(*part.load()))
        return f"sound: {path}"
    times = "" if part.start_s is None else f", from {part.start_s} s"
    times += "" if part.end_s is None else f", to {part.end_s} s"
    return f"video: {_video(part.load(), folder / name)}{times}"


def _video(loaded: Any, place: Path) -> Path:
    """Where a video is: its own file, one that holds its bytes, or a folder with its pictures."""
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
