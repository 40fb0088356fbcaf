"""Compare with the recorded answers of lm_eval 0.4.13 `hf` for the same tiny checkpoints (`record.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.models.hf.hf_requests import ask, likelihood, rolling
from tests.models.hf.record import ARGUMENTS, GENERATED, PAIRS, RECORDED, ROLLED
from tests.models.hf.tiny_checkpoints import make_checkpoint

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Response

pytestmark = pytest.mark.torch
LIMITED = [title for title in ARGUMENTS if title != "t5"]
"""For encoder-decoder models, lm_eval adds the length of the prompt to the token limit."""


@pytest.fixture(scope="module")
def recording() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, recording: dict[str, Any]) -> dict[str, Path]:
    """Return the checkpoints of the recording, with its tokenizer."""
    made = {}
    for title in ARGUMENTS:
        made[title] = make_checkpoint(tmp_path_factory.mktemp("recording") / "model", title.split()[0])
        (made[title] / "tokenizer.json").write_text(json.dumps(recording["tokenizer"]))
    return made


def answers(folder: Path, title: str, requests: list[Request], **more: Any) -> list[Any]:
    outcomes = ask(folder, requests, dtype="float32", **ARGUMENTS[title], **more)
    assert all(isinstance(one, Response) for one in outcomes), outcomes
    return [one.value for one in outcomes if isinstance(one, Response)]


@pytest.mark.parametrize("title", ARGUMENTS)
def test_likelihoods_equal_lm_eval(title: str, folders: dict[str, Path], recording: dict[str, Any]) -> None:
    requests: list[Request] = [likelihood(*pair) for pair in PAIRS]
    requests += [rolling(text) for text in ROLLED]
    expected = [
        *recording[title]["likelihoods"],
        *[(total, None) for total in recording[title]["rolling"]],
    ]
    for found, (total, greedy) in zip(answers(folders[title], title, requests), expected, strict=True):
        assert found.total == pytest.approx(total, abs=1e-4, rel=1e-6)
        assert greedy is None or found.greedy is greedy


@pytest.mark.parametrize("title", LIMITED)
def test_texts_equal_lm_eval(title: str, folders: dict[str, Path], recording: dict[str, Any]) -> None:
    requests: list[Request] = [
        Generate(task="t", document=at, prompt=Prompt.of_text(text), settings=Settings(settings))
        for at, (text, settings) in enumerate(GENERATED)
    ]
    for batch_size in (1, 4):
        found = answers(folders[title], title, requests, batch_size=batch_size)
        assert found == recording[title]["texts"]
