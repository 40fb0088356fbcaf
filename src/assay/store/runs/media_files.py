"""Media files of a run, stored next to its journal by content hash for the viewer.

`media/<digest>` contains bytes that are safe for a browser: the original image, audio or video file, or a decoded one
written as PNG or WAV. The type is detected from the first bytes, never from an external name.
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
"""(offset, bytes, content type). No type that a browser executes: no SVG and no HTML."""


def detect_content_type(head: bytes) -> str:
    """Return the content type of a file from its first bytes; empty for unsupported types.

    >>> detect_content_type(b"GIF89a..."), detect_content_type(b"<svg onload=alert(1)>")
    ('image/gif', '')
    """
    for offset, signature, kind in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return kind
    return ""


def find_media_file(run_folder: Path, digest: str) -> Path | None:
    """Return the file with this digest in a run, or None. Names that are not digests are rejected."""
    if not _DIGEST.fullmatch(digest):
        return None
    for folder in (run_folder, run_folder.parent.parent):  # a rescoring is inside its run
        path = folder / MEDIA_FOLDER / digest
        if path.is_file() and not path.is_symlink():
            return path
        if run_folder.parent.name != "scorings":
            break
    return None


def write_media(folder: Path, digest: str, data: bytes) -> bool:
    """Store a media file in a run folder atomically; return False if it exists."""
    if not _DIGEST.fullmatch(digest):
        return False
    path = folder / MEDIA_FOLDER / digest
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{digest}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
    return True
