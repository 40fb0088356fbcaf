"""Create small media files for tests, so the repository contains none."""

from __future__ import annotations

import io
import math
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pictures


def make_png(colour: str = "red", size: tuple[int, int] = (3, 2)) -> bytes:
    return make_image("PNG", colour, size)


def make_image(kind: str, colour: str = "red", size: tuple[int, int] = (32, 24), **details: Any) -> bytes:
    buffer = io.BytesIO()
    Pictures.new("RGB", size, colour).save(buffer, kind, **details)
    return buffer.getvalue()


def make_noise_jpeg(size: tuple[int, int] = (200, 150)) -> bytes:
    """Return a JPEG that is large enough to truncate."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Pictures.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def make_wav(seconds: float = 0.5, rate_hz: int = 8000, channels: int = 1, tone_hz: float = 440.0) -> bytes:
    """Return a tone at half amplitude; a second channel is silent."""
    times = np.arange(int(seconds * rate_hz)) / rate_hz
    tone = (0.5 * 32767 * np.sin(2 * math.pi * tone_hz * times)).astype("<i2")
    tracks = np.stack([tone] + [np.zeros_like(tone)] * (channels - 1), axis=1)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(tracks.tobytes())
    return buffer.getvalue()


def write_video(
    path: Path,
    count: int = 20,
    rate: int = 10,
    *,
    sound: bool = False,
    codec: str = "mpeg4",
    key_every: int = 5,
) -> Path:
    """Write `count` frames, with frame n in the grey level 10 * n, and optionally a tone of the same length."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options={"g": str(key_every)})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        track = container.add_stream("aac", rate=16_000) if sound else None
        for number in range(count):
            frame = av.VideoFrame.from_image(Pictures.new("RGB", (64, 48), (10 * number,) * 3))
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
        if track is not None:
            _add_tone(av, container, track, count / rate)
    return path


def _add_tone(av: Any, container: Any, track: Any, seconds: float) -> None:
    times = np.arange(int(seconds * 16_000)) / 16_000
    tone = (0.5 * np.sin(2 * math.pi * 440 * times)).astype(np.float32)[None]
    sound = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
    sound.sample_rate = 16_000
    for packet in [*track.encode(sound), *track.encode()]:
        container.mux(packet)


def read_frame_numbers(clip: Any) -> list[int]:
    """Return the frame numbers of a clip of `write_video`."""
    return [round(float(np.asarray(frame).mean()) / 10) for frame in clip.frames]
