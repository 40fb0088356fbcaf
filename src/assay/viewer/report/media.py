"""Media in a report: pictures as thumbnails, short sounds whole, everything else by name."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import Any

from assay.store.media_files import content_type, media_path
from assay.store.runs import Run

__all__ = ["Shelf", "thumbnail"]

_SIDE_PX = 360
_TINY_PX = 128
"""Up to this size pictures are drawings more often than photographs, and kept exactly."""

_LONGEST_SOUND = 400_000
_MOST_BYTES = 12_000_000
"""Media in one report, all together."""

_LARGEST_FILE = 200_000_000


class Shelf:
    """Media that were made small enough to be inside the file; each once, and not without end."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[str, str]] = {}
        self._bytes = 0

    def show(self, run: Run, kind: str, digest: str, source: str) -> dict[str, str]:
        """`url` (a data URL, or empty) and `about` of a medium."""
        key = (str(run.folder), digest)
        if key not in self._known:
            path = media_path(run.folder, digest) or media_path(
                run.folder, f"{digest}-0"
            )  # a video's first frame
            self._known[key] = self._made(path, kind, digest, source)
        return self._known[key]

    def _made(self, path: Path | None, kind: str, digest: str, source: str) -> dict[str, str]:
        name = f"{kind}: {source or digest[:12]}"
        if path is None:
            return {"url": "", "about": f"{name} (not kept with the run)"}
        if self._bytes > _MOST_BYTES:
            return {"url": "", "about": f"{name} (left out: the report would be too large)"}
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= _LARGEST_FILE else b""
        except OSError:
            return {"url": "", "about": f"{name} (cannot be read)"}
        found = content_type(data[:16])
        small: tuple[str, bytes] | None = None
        if found.startswith("image/"):
            small = thumbnail(data)
        elif found.startswith("audio/") and size <= _LONGEST_SOUND:
            small = (found, data)
        if small is None:
            return {"url": "", "about": f"{name} ({size / 1e6:.1f} MB)"}
        self._bytes += len(small[1])
        return {"url": f"data:{small[0]};base64,{base64.b64encode(small[1]).decode()}", "about": name}


def thumbnail(data: bytes, side_px: int = _SIDE_PX) -> tuple[str, bytes] | None:
    """(kind, bytes) of a small picture, written anew: nothing of the file but its pixels; None where it has none."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture: Any = Image.open(io.BytesIO(data))
            picture.draft("RGB", (2 * side_px, 2 * side_px))  # JPEG is decoded no larger than needed
            picture.thumbnail((side_px, side_px))
            flat = picture.mode in ("RGB", "L")
            picture = picture if flat else picture.convert("RGBA")
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Image.DecompressionBombError, Warning):
        return None
    stream = io.BytesIO()
    if flat and max(picture.size) > _TINY_PX:
        picture.save(stream, "JPEG", quality=80, optimize=True)
        return "image/jpeg", stream.getvalue()
    picture.save(stream, "PNG", optimize=True)
    return "image/png", stream.getvalue()
