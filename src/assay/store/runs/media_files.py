"""The media of a run, kept beside its journal under their content hash, so that they can be looked at later.

`media/<digest>` holds bytes that a browser may be given: a picture, a sound or a video as its file was, or a decoded
one written as PNG or WAV. What it is stands in its first bytes, never in a name that came from outside.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["MEDIA_FOLDER", "detect_content_type", "find_media_file", "write_media"]

MEDIA_FOLDER = "media"
_DIGEST = re.compile(r"[0-9a-f]{64}(-\d{1,4})?")
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BM", "image/bmp"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (4, b"ftypM4A", "audio/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (4, b"ftyp", "video/mp4"),
)
"""(where, what stands there, what it is): nothing a browser would run, so no SVG and no HTML."""


def detect_content_type(head: bytes) -> str:
    """What a file is, by its first bytes; empty for anything that is not shown.

    >>> content_type(b"GIF89a..."), content_type(b"<svg onload=alert(1)>")
    ('image/gif', '')
    """
    for at, mark, kind in _SIGNATURES:
        if head[at : at + len(mark)] == mark:
            return kind
    return ""


def find_media_file(run_folder: Path, digest: str) -> Path | None:
    """The file of a medium in a run; None where there is none. Anything but a hash names nothing."""
    if not _DIGEST.fullmatch(digest):
        return None
    for folder in (run_folder, run_folder.parent.parent):  # a later scoring lies inside its run
        path = folder / MEDIA_FOLDER / digest
        if path.is_file() and not path.is_symlink():
            return path
        if run_folder.parent.name != "scorings":
            break
    return None


def write_media(folder: Path, digest: str, data: bytes) -> bool:
    """Keep a medium in a run's folder; False where it was there. Nobody ever sees half a file."""
    if not _DIGEST.fullmatch(digest):
        return False
    path = folder / MEDIA_FOLDER / digest
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = path.with_name(f".{digest}.{os.getpid()}")
    waiting.write_bytes(data)
    waiting.replace(path)
    return True
