"""Decoding of `Image`, `Audio` and `Video` parts to pixels and samples.

    from assay.media import frames, picture, waveform

    picture(image)                    # a PIL image
    waveform(audio, rate_hz=16_000)   # float32 samples, one channel
    frames(video, count=8)            # a Clip: images and their times

This package does not know about tasks, models or runs. Pillow is a dependency of Assay; PyAV, soundfile and soxr are
part of `assay-harness[media]` and are imported on first use. Media that cannot be read raise `MediaError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.media.parts import frames, picture, waveform
    from assay.media.video import Clip

__all__ = ["Clip", "frames", "picture", "waveform"]


def __getattr__(name: str) -> Any:
    """Import public names on first use: every run imports this package, and few decode media."""
    if name in __all__:
        return getattr(import_module("assay.media.video" if name == "Clip" else "assay.media.parts"), name)
    raise AttributeError(f"module 'assay.media' has no attribute {name!r}")
