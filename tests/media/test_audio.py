from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.making_media import make_wav, write_video

from assay.core.errors import MediaError, MissingPackage
from assay.core.installation import format_install_command
from assay.media import audio
from assay.media.audio import decode_audio, encode_wav, resample, samples_from_array
from assay.media.media_files import open_media_file

soundfile = pytest.importorskip("soundfile", reason="assay-harness[media] is not installed")
pytest.importorskip("av", reason="assay-harness[media] is not installed")


def find_frequency(samples: Any, rate_hz: int) -> float:
    """The loudest frequency, in Hz."""
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.fft.rfftfreq(len(samples), 1 / rate_hz)[spectrum.argmax()])


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_sounds_of_many_kinds_are_read(tmp_path: Path, kind: str) -> None:
    samples, _ = decode_audio(open_media_file(make_wav(1.0, 16_000)))
    path = tmp_path / "x.unknown"
    soundfile.write(path, samples, 16_000, format=kind)
    found, rate_hz = decode_audio(open_media_file(path))
    assert (found.dtype, rate_hz, found.ndim) == (np.float32, 16_000, 1)
    assert find_frequency(found, rate_hz) == pytest.approx(440, abs=2)
    assert np.abs(found).max() == pytest.approx(0.5, abs=0.05)


def test_two_channels_become_their_mean() -> None:
    alone, _ = decode_audio(open_media_file(make_wav(channels=1)))
    mixed, _ = decode_audio(open_media_file(make_wav(channels=2)))
    np.testing.assert_allclose(mixed, alone / 2, atol=1e-4)


def test_the_audio_track_of_a_video_is_decoded(tmp_path: Path) -> None:
    source = open_media_file(write_video(tmp_path / "x.mp4", sound=True))
    for one in (source, open_media_file(source.read())):
        samples, rate_hz = decode_audio(one)
        assert rate_hz == 16_000
        assert len(samples) / rate_hz == pytest.approx(2.0, abs=0.15)
        assert find_frequency(samples, rate_hz) == pytest.approx(440, abs=2)


def test_a_video_without_audio_is_rejected_with_its_path(tmp_path: Path) -> None:
    path = write_video(tmp_path / "x.mp4")
    with pytest.raises(MediaError, match="no audio track") as caught:
        decode_audio(open_media_file(path))
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    "data",
    [b"", b"RIFF", b"\x00" * 500, make_wav(0.0), b"ID3" + b"\x00" * 200],
    ids=["empty", "RIFF", "zeros", "silent", "ID3"],
)
def test_damaged_audio_is_rejected_with_its_path(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(data)
    for source in (open_media_file(path), open_media_file(data, where=str(path))):
        with pytest.raises(MediaError, match="cannot read the audio") as caught:
            decode_audio(source)
        assert caught.value.where == str(path)
        assert ".;" not in caught.value.what and not caught.value.what.endswith(".")


def test_truncated_audio_is_decoded_up_to_its_end() -> None:
    whole, _ = decode_audio(open_media_file(make_wav()))
    cut, _ = decode_audio(open_media_file(make_wav()[:-1000]))
    assert 0 < len(cut) < len(whole)
    np.testing.assert_array_equal(cut, whole[: len(cut)])


def test_resampled_audio_has_the_same_tone() -> None:
    samples, rate_hz = decode_audio(open_media_file(make_wav(1.0, 44_100)))
    found = resample(samples, rate_hz, 16_000)
    assert (len(found), found.dtype) == (16_000, np.float32)
    assert find_frequency(found, 16_000) == pytest.approx(440, abs=1)
    assert resample(samples, 16_000, 16_000) is samples


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as caught:
        decode_audio(open_media_file(make_wav()))
    assert format_install_command("media") in caught.value.hint


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        ([0.0, 0.5], [0.0, 0.5]),
        (np.array([0, 16384], np.int16), [0.0, 0.5]),
        (np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]), [0.5, 0.5, 0.0]),
        (np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 0.0]]), [0.5, 0.5, 0.0]),
    ],
)
def test_arrays_of_samples_become_one_channel(array: Any, expected: list[float]) -> None:
    found = samples_from_array(array)
    assert (found.dtype, found.tolist()) == (np.float32, expected)


@pytest.mark.parametrize("array", [["a"], [[[0.0]]], 5.0])
def test_what_is_no_array_of_samples_is_refused(array: Any) -> None:
    with pytest.raises(MediaError):
        samples_from_array(array)


def test_samples_become_a_file_and_come_back() -> None:
    samples, rate_hz = decode_audio(open_media_file(make_wav()))
    found, found_hz = decode_audio(open_media_file(encode_wav(samples, rate_hz)))
    assert found_hz == rate_hz
    np.testing.assert_allclose(found, samples, atol=1e-4)
