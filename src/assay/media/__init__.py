"""From a file to pixels and samples: what `Image`, `Audio` and `Video` parts are decoded with.

    from assay.media import frames, picture, waveform

    picture(image)                    # a PIL image
    waveform(audio, rate_hz=16_000)   # float32 samples, one channel
    frames(video, count=8)            # a Clip: pictures and their times

Knows files and parts; nothing of tasks, models or runs. Pillow comes with Assay; PyAV, soundfile and soxr come with
`assay-harness[media]` and are imported when a sound or video is first decoded. Whatever cannot be read raises `MediaError`.
"""

from __future__ import annotations

from assay.media.parts import frames, picture, waveform
from assay.media.videos import Clip

__all__ = ["Clip", "frames", "picture", "waveform"]
