"""Media embedded in a report."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import pytest
from tests.viewer.report.conftest import compute_digest, picture

from assay.store.runs.media_files import write_media
from assay.viewer.report.media import MediaEmbedder, make_thumbnail


def test_images_become_reencoded_thumbnails(runs: list[Any]) -> None:
    data = picture() + b"<script>alert(1)</script>"
    digest = compute_digest(data)
    assert write_media(runs[0].folder, digest, data)
    shown = MediaEmbedder().embed(runs[0], "image", digest, "a.png")
    kind, _, encoded = shown["url"].partition(";base64,")
    assert kind == "data:image/jpeg"
    small = base64.b64decode(encoded)
    assert b"script" not in small
    from PIL import Image

    assert max(Image.open(io.BytesIO(small)).size) == 360


@pytest.mark.parametrize("data", [b"<svg onload=alert(1)>", b"", b"\x89PNG\r\n\x1a\n broken", b"MZ\x00"])
def test_unreadable_images_are_listed_by_name(runs: list[Any], data: bytes) -> None:
    digest = compute_digest(data)
    write_media(runs[0].folder, digest, data)
    shown = MediaEmbedder().embed(runs[0], "image", digest, "evil")
    assert shown["url"] == ""
    assert "evil" in shown["caption"]
    assert make_thumbnail(data) is None


@pytest.mark.parametrize("digest", ["../../journal.sqlite", "/etc/passwd", "", "a" * 64])
def test_missing_media_are_listed_by_name(runs: list[Any], digest: str) -> None:
    assert MediaEmbedder().embed(runs[0], "image", digest, "x")["url"] == ""


def test_short_audio_is_embedded_and_long_audio_is_named(runs: list[Any]) -> None:
    for seconds, playable in ((0.1, True), (60.0, False)):
        stream = io.BytesIO()
        with wave.open(stream, "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(b"\0\0" * int(8000 * seconds))
        data = stream.getvalue()
        write_media(runs[0].folder, compute_digest(data), data)
        shown = MediaEmbedder().embed(runs[0], "audio", compute_digest(data), "a.wav")
        assert shown["url"].startswith("data:audio/wav;base64,") == playable
        assert "a.wav" in shown["caption"]


def test_a_video_is_shown_as_its_first_frame(runs: list[Any]) -> None:
    data = picture("blue", 64)
    assert write_media(runs[0].folder, f"{'b' * 64}-0", data)
    assert (
        MediaEmbedder().embed(runs[0], "video", "b" * 64, "clip")["url"].startswith("data:image/png;base64,")
    )
