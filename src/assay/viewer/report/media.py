"""Media embedded in a report: images as thumbnails, short audio as it is, everything else by name."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import Any

from assay.store.runs.media_files import detect_content_type, find_media_file
from assay.store.runs.run import Run

__all__ = ["MediaEmbedder", "make_thumbnail"]

_THUMBNAIL_PX = 360
_LOSSLESS_PX = 128
"""Images up to this size are usually drawings and stay lossless."""

_MAX_AUDIO_BYTES = 400_000
_MAX_TOTAL_BYTES = 12_000_000
"""The total size of media in one report."""

_MAX_FILE_BYTES = 200_000_000


class MediaEmbedder:
    """Converts media to data URLs, each once, up to a total size."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[str, str]] = {}
        self._bytes = 0

    def embed(self, run: Run, kind: str, digest: str, source: str) -> dict[str, str]:
        """Return the `url` (a data URL, or empty) and the `caption` of a media file."""
        key = (str(run.folder), digest)
        if key not in self._known:
            path = find_media_file(run.folder, digest) or find_media_file(
                run.folder, f"{digest}-0"
            )  # a video's first frame
            self._known[key] = self._embed_file(path, kind, digest, source)
        return self._known[key]

    def _embed_file(self, path: Path | None, kind: str, digest: str, source: str) -> dict[str, str]:
        name = f"{kind}: {source or digest[:12]}"
        if path is None:
            return {"url": "", "caption": f"{name} (not stored with the run)"}
        if self._bytes > _MAX_TOTAL_BYTES:
            return {"url": "", "caption": f"{name} (omitted: the report would be too large)"}
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= _MAX_FILE_BYTES else b""
        except OSError:
            return {"url": "", "caption": f"{name} (cannot be read)"}
        found = detect_content_type(data[:16])
        small: tuple[str, bytes] | None = None
        if found.startswith("image/"):
            small = make_thumbnail(data)
        elif found.startswith("audio/") and size <= _MAX_AUDIO_BYTES:
            small = (found, data)
        if small is None:
            return {"url": "", "caption": f"{name} ({size / 1e6:.1f} MB)"}
        self._bytes += len(small[1])
        return {"url": f"data:{small[0]};base64,{base64.b64encode(small[1]).decode()}", "caption": name}


def make_thumbnail(data: bytes, side_px: int = _THUMBNAIL_PX) -> tuple[str, bytes] | None:
    """Return (content type, bytes) of a re-encoded thumbnail without metadata; None if the image cannot be read."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture: Any = Image.open(io.BytesIO(data))
            picture.draft("RGB", (2 * side_px, 2 * side_px))  # decode JPEG no larger than needed
            picture.thumbnail((side_px, side_px))
            flat = picture.mode in ("RGB", "L")
            picture = picture if flat else picture.convert("RGBA")
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Image.DecompressionBombError, Warning):
        return None
    stream = io.BytesIO()
    if flat and max(picture.size) > _LOSSLESS_PX:
        picture.save(stream, "JPEG", quality=80, optimize=True)
        return "image/jpeg", stream.getvalue()
    picture.save(stream, "PNG", optimize=True)
    return "image/png", stream.getvalue()
