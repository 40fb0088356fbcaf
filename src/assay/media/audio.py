"""Audio: decodes files and audio tracks of videos to mono samples, and resamples them."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from assay.core.errors import MediaError, MissingPackage
from assay.core.installation import format_install_command
from assay.media.media_files import MediaFile, open_container

__all__ = ["decode_audio", "resample", "samples_from_array"]

Samples = tuple[Any, int]
"""(float32 mono samples, mostly in -1..1; sample rate in Hz)."""


def decode_audio(source: MediaFile) -> Samples:
    """Return the samples of an audio file or of the audio track of a video.

    soundfile reads WAV, FLAC, Ogg and MP3; PyAV reads other formats.

    Raises:
        MediaError: The file is empty, truncated before the first sample, or not audio.
        MissingPackage: `assay-harness[media]` is not installed.
    """
    data = source.read() if source.path is None else b"-"
    if not data or (source.path is not None and not source.path.stat().st_size):
        raise MediaError("cannot read the audio: the file is empty", where=source.name)
    readers = [
        read
        for package, read in (("soundfile", _decode_with_soundfile), ("av", _decode_with_av))
        if find_spec(package)
    ]
    if not readers:
        raise MissingPackage.of("soundfile", "decoding audio", extra="media", where=source.name)
    reasons = []
    for read in readers:
        try:
            samples, rate_hz = read(source)
        except _DecodeError as error:
            reasons.append(str(error).rstrip(". "))  # libsndfile ends with a full stop, FFmpeg does not
        else:
            if len(samples):
                return samples, rate_hz
            reasons.append("it contains no audio")
    hint = "" if len(readers) == 2 else f"more formats: {format_install_command('media')}"
    raise MediaError(f"cannot read the audio: {'; '.join(reasons)}", where=source.name, hint=hint)


class _DecodeError(Exception):
    """A decoder cannot read a file."""


def _decode_with_soundfile(source: MediaFile) -> Samples:
    soundfile = import_module("soundfile")
    try:
        samples, rate_hz = soundfile.read(source.open(), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OSError) as error:
        raise _DecodeError(str(error).rpartition(": ")[2]) from None
    return _mix_to_mono(samples), int(rate_hz)


def _decode_with_av(source: MediaFile) -> Samples:
    import numpy

    av = import_module("av")
    pieces: list[Any] = []
    rate_hz = 0
    try:
        with open_container(av, source) as container:
            if not container.streams.audio:
                raise _DecodeError("it has no audio track")
            resampler = None
            for frame in container.decode(container.streams.audio[0]):
                if resampler is None:
                    rate_hz = frame.sample_rate
                    resampler = av.AudioResampler(format="fltp", rate=rate_hz)
                pieces += [part.to_ndarray() for part in resampler.resample(frame)]
            pieces += [part.to_ndarray() for part in (resampler.resample(None) if resampler else [])]
    except (av.FFmpegError, OSError, ValueError) as error:
        if not pieces:
            raise _DecodeError(str(error)) from None  # truncated: keep what was read
    if not pieces:
        return numpy.zeros(0, numpy.float32), 0
    return _mix_to_mono(numpy.concatenate(pieces, axis=1).T), rate_hz


def samples_from_array(array: Any, *, where: str = "") -> Any:
    """Return float32 mono samples from an array of samples (x channels, in either order)."""
    import numpy

    try:
        samples = numpy.asarray(array)
        if samples.dtype.kind == "i":
            samples = (
                samples / float(numpy.iinfo(samples.dtype).max + 1) if samples.dtype.itemsize < 8 else samples
            )
        samples = samples.astype(numpy.float32)
    except (TypeError, ValueError) as error:
        raise MediaError(f"invalid audio samples: {error}", where=where) from None
    if samples.ndim == 2:
        samples = _mix_to_mono(samples if samples.shape[0] >= samples.shape[1] else samples.T)
    if samples.ndim != 1:
        raise MediaError(f"an array of shape {samples.shape} is not audio", where=where)
    return samples


def _mix_to_mono(samples: Any) -> Any:
    """Return the mean over channels of a (samples, channels) array."""
    return samples[:, 0].copy() if samples.shape[1] == 1 else samples.mean(axis=1, dtype=samples.dtype)


def resample(samples: Any, from_hz: int, to_hz: int) -> Any:
    """Resample to another rate."""
    if from_hz == to_hz:
        return samples
    try:
        soxr = import_module("soxr")
    except ModuleNotFoundError:
        raise MissingPackage.of(
            "soxr", f"resampling audio from {from_hz} to {to_hz} Hz", extra="media"
        ) from None
    return soxr.resample(samples, from_hz, to_hz)


def encode_wav(samples: Any, rate_hz: int) -> bytes:
    """Return a 16-bit WAV file, for services that take files."""
    import wave

    import numpy

    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((numpy.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()
