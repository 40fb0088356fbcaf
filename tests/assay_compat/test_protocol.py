"""The shim `lmms_eval.protocol`."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assay.core.errors import MissingPackage
from assay_compat.shims.lmms_eval.protocol import ChatMessages


def test_messages_have_media_in_order_and_the_form_of_chat_templates() -> None:
    parts = [
        {"type": "image", "url": "first"},
        {"type": "text", "text": "Which?"},
        {"type": "video", "url": "film", "start_time": 1.5},
        {"type": "audio", "url": "sound"},
    ]
    chat = ChatMessages(messages=[{"role": "user", "content": parts}])
    assert chat.extract_media() == (["first"], ["film"], ["sound"])
    (message,) = chat.to_hf_messages(video_kwargs={"nframes": 4}, image_kwargs={"max_pixels": 9})
    assert message == {
        "role": "user",
        "content": [
            {"type": "image", "image": "first", "max_pixels": 9},
            {"type": "text", "text": "Which?"},
            {"type": "video", "video": "film", "nframes": 4, "video_start": 1.5},
            {"type": "audio", "audio": "sound"},
        ],
    }


def write_image(kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(file, format=kind, **options)
    return file.getvalue()


def test_messages_of_chat_apis_contain_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "red.png").write_bytes(write_image())
    parts = [
        {"type": "image", "url": Image.new("RGB", (4, 3), "red")},
        {"type": "image", "url": str(tmp_path / "red.png")},
        {"type": "text", "text": "Which?"},
        {"type": "audio", "url": "sound"},
    ]
    chat = ChatMessages(messages=[{"role": "user", "content": parts}])
    inline = {"url": f"data:image/png;base64,{base64.b64encode(write_image()).decode()}"}
    assert chat.to_openai_messages() == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": inline},
                {"type": "image_url", "image_url": inline},
                {"type": "text", "text": "Which?"},
                {"type": "audio_url", "audio_url": {"url": "sound"}},
            ],
        }
    ]
    monkeypatch.setenv("LMMS_IMAGE_ENCODE_FORMAT", "jpg")
    monkeypatch.setenv("LMMS_IMAGE_JPEG_QUALITY", "50")
    first = chat.to_openai_messages()[0]["content"][0]["image_url"]["url"]
    assert first == f"data:image/jpeg;base64,{base64.b64encode(write_image('JPEG', quality=50)).decode()}"


def test_messages_of_chat_apis_name_videos(monkeypatch: pytest.MonkeyPatch) -> None:
    videos = [{"type": "video", "url": url} for url in ("film.mp4", "https://example.org/film.mp4")]
    chat = ChatMessages(messages=[{"role": "user", "content": videos}])
    assert [
        part["video_url"]["url"] for part in chat.to_openai_messages(pass_video_url=True)[0]["content"]
    ] == [
        f"file://{Path('film.mp4').absolute()}",
        "https://example.org/film.mp4",
    ]
    monkeypatch.setitem(sys.modules, "qwen_vl_utils", None)
    with pytest.raises(MissingPackage, match="qwen_vl_utils"):
        chat.to_openai_messages()
