"""Save the media of a run in its folder, so that the viewer can show them.

The run does not depend on it: on a full disk, an unreadable medium or an exhausted budget the viewer only lacks media.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import wave
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.records.messages import Audio, Image, Media, Video
from assay.core.records.requests import Request
from assay.media.images import is_image
from assay.media.media_files import open_media_file
from assay.media.video import FrameSelection, extract_frames
from assay.store.runs.media_files import detect_content_type, write_media
from assay.store.runs.run import SCORINGS_FOLDER

__all__ = ["MediaArchive"]

MAX_FILE_BYTES = 256 * 2**20
MAX_FRAMES = 8
"""Frames saved of a video that comes as single images, or in a format that browsers do not play."""

MAX_LOSSLESS_PIXELS = 512 * 512


class MediaArchive:
    """Saves each medium once, up to a budget."""

    def __init__(self, run_folder: Path, budget_mb: int) -> None:
        self._folder = run_folder
        self._left = 0 if run_folder.parent.name == SCORINGS_FOLDER else budget_mb * 2**20
        self._seen: set[str] = set()

    async def save(self, documents: Iterable[Any]) -> None:
        """Save the media of documents."""
        if self._left <= 0:
            return
        media = list(self._new(request for document in documents for request in document.requests))
        if media:
            await asyncio.to_thread(self._write, media)

    def _new(self, requests: Iterable[Request]) -> Iterator[Media]:
        last = None
        for request in requests:
            if request.prompt is last:  # the choices of a document share a prompt
                continue
            last = request.prompt
            for part in last.media if last.has_media else ():
                if part.digest not in self._seen:
                    self._seen.add(part.digest)
                    yield part

    def _write(self, media: list[Media]) -> None:
        for part in media:
            try:
                for name, data in _list_viewable_files(part):
                    if len(data) <= self._left and detect_content_type(data[:32]):
                        self._left -= len(data) * write_media(self._folder, name, data)
            except (AssayError, OSError, ValueError, MemoryError):
                continue  # the model reports it


def _list_viewable_files(part: Media) -> Iterator[tuple[str, bytes]]:
    """Yield what a browser can show of a medium, with its file names."""
    if part.source.startswith(("http:", "https:")):
        return  # not downloaded again
    as_it_is = _read_file(part)
    if as_it_is is not None and detect_content_type(as_it_is[:32]):
        yield part.digest, as_it_is
    elif isinstance(part, Image):
        yield part.digest, _encode_image(part.load())
    elif isinstance(part, Audio):
        yield part.digest, _encode_audio(*part.load())
    elif isinstance(part, Video):
        frames = part.load()
        if not isinstance(frames, list) and as_it_is is not None:  # a format that browsers do not play
            selection = FrameSelection(count=MAX_FRAMES, start_s=part.start_s, end_s=part.end_s)
            frames = list(extract_frames(open_media_file(as_it_is), selection).frames)
        if isinstance(frames, list):
            step = max(1, len(frames) // MAX_FRAMES)
            for at, frame in enumerate(frames[::step][:MAX_FRAMES]):
                yield f"{part.digest}-{at}", _encode_image(frame)


def _read_file(part: Media) -> bytes | None:
    """Read the file of a medium, if it has one that is not too large."""
    if isinstance(part, Image) and part.file is not None:
        return part.file()
    if isinstance(part, Video):
        loaded = part.load()
        if isinstance(loaded, bytes):
            return loaded if len(loaded) <= MAX_FILE_BYTES else None
    path = Path(part.source)
    try:
        if part.source and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
            data = path.read_bytes()
            return data if hashlib.sha256(data).hexdigest() == part.digest else None
    except (OSError, ValueError):
        return None
    return None


def _encode_image(picture: Any) -> bytes:
    """Encode an image: lossless if it is small, as JPEG if it is large."""
    if not is_image(picture):
        raise ValueError("not an image")
    buffer = io.BytesIO()
    if picture.mode == "RGB" and picture.size[0] * picture.size[1] > MAX_LOSSLESS_PIXELS:
        picture.save(buffer, "JPEG", quality=90)
    else:
        modes = ("1", "L", "LA", "P", "RGB", "RGBA")
        (picture if picture.mode in modes else picture.convert("RGB")).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _encode_audio(samples: Any, rate_hz: int) -> bytes:
    """Encode samples as a 16-bit WAV file."""
    import numpy as np

    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()
