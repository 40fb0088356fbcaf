"""Sounds: files and sound tracks to samples, one channel, at any rate."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from assay.core.errors import MediaError, MissingPackage
from assay.core.installation import format_install_command
from assay.media.encoded import Encoded

__all__ = ["decode_sound", "resample", "samples_of_array"]

Sound = tuple[Any, int]
"""float32 samples, one channel, most of them in -1..1; and how many make a second."""


def decode_sound(source: Encoded) -> Sound:
    """The samples of a sound file, or of the sound track of a video.

    soundfile reads WAV, FLAC, Ogg and MP3; PyAV reads what it does not know.

    Raises:
        MediaError: It is empty, cut off before the first sample, or not a sound.
        MissingPackage: `assay-harness[media]` is not installed.
    """
    data = source.read() if source.path is None else b"-"
    if not data or (source.path is not None and not source.path.stat().st_size):
        raise MediaError("the sound cannot be read: the file is empty", where=source.name)
    readers = [
        read for package, read in (("soundfile", _with_soundfile), ("av", _with_av)) if find_spec(package)
    ]
    if not readers:
        raise MissingPackage.of("soundfile", "decoding sounds", extra="media", where=source.name)
    reasons = []
    for read in readers:
        try:
            samples, rate_hz = read(source)
        except _Unreadable as error:
            reasons.append(str(error))
        else:
            if len(samples):
                return samples, rate_hz
            reasons.append("there is no sound in it")
    hint = "" if len(readers) == 2 else f"more formats: {format_install_command('media')}"
    raise MediaError(f"the sound cannot be read: {'; '.join(reasons)}", where=source.name, hint=hint)


class _Unreadable(Exception):
    """One of the readers does not get along with a file."""


def _with_soundfile(source: Encoded) -> Sound:
    soundfile = import_module("soundfile")
    try:
        samples, rate_hz = soundfile.read(source.open(), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OSError) as error:
        raise _Unreadable(str(error).rpartition(": ")[2]) from None
    return _one_channel(samples), int(rate_hz)


def _with_av(source: Encoded) -> Sound:
    import numpy

    av = import_module("av")
    pieces: list[Any] = []
    rate_hz = 0
    try:
        with av.open(source.open(), metadata_errors="ignore") as container:
            if not container.streams.audio:
                raise _Unreadable("it has no sound track")
            resampler = None
            for frame in container.decode(container.streams.audio[0]):
                if resampler is None:
                    rate_hz = frame.sample_rate
                    resampler = av.AudioResampler(format="fltp", rate=rate_hz)
                pieces += [made.to_ndarray() for made in resampler.resample(frame)]
            pieces += [made.to_ndarray() for made in (resampler.resample(None) if resampler else [])]
    except (av.FFmpegError, OSError, ValueError) as error:
        if not pieces:
            raise _Unreadable(str(error)) from None  # else: cut off; what was read is kept
    if not pieces:
        return numpy.zeros(0, numpy.float32), 0
    return _one_channel(numpy.concatenate(pieces, axis=1).T), rate_hz


def samples_of_array(array: Any, *, where: str = "") -> Any:
    """float32 samples of one channel, from any array of samples (x channels, in either order)."""
    import numpy

    try:
        samples = numpy.asarray(array)
        if samples.dtype.kind == "i":
            samples = (
                samples / float(numpy.iinfo(samples.dtype).max + 1) if samples.dtype.itemsize < 8 else samples
            )
        samples = samples.astype(numpy.float32)
    except (TypeError, ValueError) as error:
        raise MediaError(f"not the samples of a sound: {error}", where=where) from None
    if samples.ndim == 2:
        samples = _one_channel(samples if samples.shape[0] >= samples.shape[1] else samples.T)
    if samples.ndim != 1:
        raise MediaError(f"an array of shape {samples.shape} is not a sound", where=where)
    return samples


def _one_channel(samples: Any) -> Any:
    """(samples, channels) -> samples: the mean."""
    return samples[:, 0].copy() if samples.shape[1] == 1 else samples.mean(axis=1, dtype=samples.dtype)


def resample(samples: Any, from_hz: int, to_hz: int) -> Any:
    """The same sound with another number of samples per second."""
    if from_hz == to_hz:
        return samples
    try:
        soxr = import_module("soxr")
    except ModuleNotFoundError:
        raise MissingPackage.of(
            "soxr", f"resampling a sound from {from_hz} to {to_hz} Hz", extra="media"
        ) from None
    return soxr.resample(samples, from_hz, to_hz)


def as_wave_file(samples: Any, rate_hz: int) -> bytes:
    """A WAV file of 16 bits: what services that take files are sent."""
    import wave

    import numpy

    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((numpy.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()
