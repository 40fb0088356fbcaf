"""Frames of a stored video as JPEG files."""

from __future__ import annotations

import io
from pathlib import Path

from assay.media.media_files import open_media_file
from assay.media.video import FrameSelection, extract_frames

__all__ = ["extract_jpeg_frames"]

_FRAMES = 8
_MAX_SIDE = 640


def extract_jpeg_frames(path: Path) -> list[tuple[float, bytes]]:
    """Return the time in seconds and the JPEG file of evenly spaced frames.

    Raises:
        MediaError: The file is not a video.
        MissingPackage: `assay-harness[media]` is not installed.
    """
    clip = extract_frames(open_media_file(str(path)), FrameSelection(count=_FRAMES))
    found = []
    for time_s, frame in zip(clip.times_s, clip.frames, strict=True):
        frame.thumbnail((_MAX_SIDE, _MAX_SIDE))
        buffer = io.BytesIO()
        frame.convert("RGB").save(buffer, "JPEG", quality=85)
        found.append((time_s, buffer.getvalue()))
    return found
