"""Decoding of `Image`, `Audio` and `Video` parts to pixels and samples.

    from assay.media import frames, picture, waveform

    picture(image)                    # a PIL image
    waveform(audio, rate_hz=16_000)   # float32 samples, one channel
    frames(video, count=8)            # a Clip: images and their times

This package does not know about tasks, models or runs. Pillow is a dependency of Assay; PyAV, soundfile and soxr are
part of `assay-harness[media]` and are imported on first use. Media that cannot be read raise `MediaError`.
"""

from __future__ import annotations

from assay.media.parts import frames, picture, waveform
from assay.media.video import Clip

__all__ = ["Clip", "frames", "picture", "waveform"]
