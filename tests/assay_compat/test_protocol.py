"""The shim `lmms_eval.protocol`."""

from __future__ import annotations

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
