"""The real model transcribes the sample of its package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.making import ask
from tests.making_media import make_wav

from assay.core.errors import InvalidOption
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure
from assay.models import make_model
from assay.tasks.prompts.media_parts import to_audio_part
from assay.testing import MODEL_CHECKS
from assay_plugin_speech import SpeechModel

PACKAGE = find_spec("moonshine_voice")
needs_package = pytest.mark.skipif(
    PACKAGE is None or find_spec("soundfile") is None,
    reason="not installed: moonshine_voice",
)


def transcribe(*prompts: tuple[Any, ...]) -> list[Any]:
    requests = [
        Generate(
            task="t",
            document=at,
            prompt=Prompt((Message("user", (*parts, Text("Write."))),)),
            settings=Settings(),
        )
        for at, parts in enumerate(prompts)
    ]

    return ask(SpeechModel(), *requests)


@needs_package
def test_speech_is_transcribed_and_silence_is_empty() -> None:
    assert PACKAGE is not None and PACKAGE.origin is not None
    sample = Path(PACKAGE.origin).parent / "assets" / "beckett.wav"  # "Ever tried. Ever failed. …"
    speech, silence, broken = transcribe(
        (to_audio_part(sample),),
        (to_audio_part({"array": [0.0] * 8000, "sampling_rate": 8000}),),
        (to_audio_part(make_wav()[:30], where="x.wav"),),
    )
    assert "failed" in speech.value.lower()
    assert silence.value == ""
    assert isinstance(broken, Failure)
    assert (broken.kind, "x.wav" in broken.message) == ("bad media", True)


@needs_package
def test_the_identity_names_the_weights() -> None:
    facts = asyncio.run(SpeechModel().identify())
    assert len(facts["weights_sha256"]) == 64
    assert facts["moonshine-voice"]


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="`tiny` or `base`"):
        make_model("speech", {"kind": "huge"})
    with pytest.raises(InvalidOption):
        make_model("moonshine", {"size": 1})


@needs_package
def test_a_folder_without_weights_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="no weights"):
        asyncio.run(SpeechModel(weights=tmp_path).open())


@needs_package
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_the_model_fulfils_the_contract(check: Callable[..., None]) -> None:
    check(SpeechModel)
