"""Which media a checkpoint reads, according to its config."""

from __future__ import annotations

from typing import Any

import pytest

from assay.models.hf.loading.modalities import find_media_abilities, is_speech_to_text, read_model_type


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, set()),
        ({"model_type": "llava", "vision_config": {}}, {"image", "video"}),
        ({"model_type": "qwen2_audio", "audio_config": {}}, {"audio"}),
        (
            {"model_type": "qwen2_5_omni", "thinker_config": {"audio_config": {}, "vision_config": {}}},
            {"image", "video", "audio"},
        ),
        ({"model_type": "whisper", "vision_config": {}}, {"audio"}),
        ({"model_type": "llava", "vision_config": None}, set()),
    ],
)
def test_media_are_read_from_the_config(config: dict[str, Any], expected: set[str]) -> None:
    assert find_media_abilities(config) == expected


def test_speech_models_are_recognized_by_their_type() -> None:
    assert is_speech_to_text({"model_type": "whisper"})
    assert not is_speech_to_text({"model_type": "qwen2_audio"})
    assert read_model_type({}) == ""
