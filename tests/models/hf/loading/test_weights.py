"""A GGUF file and a device map load the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.models.hf.hf_requests import ask, likelihood
from tests.models.hf.tiny_checkpoints import tiny_checkpoint
from tests.models.hf.tiny_gguf import tiny_gguf

from assay.core.records.responses import LogProbability, Response

pytestmark = pytest.mark.torch
REQUESTS = [likelihood("the sky", " is blue"), likelihood("what the cat", " sat on")]


def totals(folder: Path, **arguments: Any) -> list[float]:
    found = []
    for outcome in ask(folder, REQUESTS, **arguments):
        assert isinstance(outcome, Response) and isinstance(outcome.value, LogProbability)
        found.append(outcome.value.total)
    return found


@pytest.mark.parametrize("device_map", ["auto", "cpu"])
def test_a_device_map_does_not_change_answers(device_map: str) -> None:
    pytest.importorskip("accelerate")
    assert np.allclose(totals(tiny_checkpoint(), device_map=device_map), totals(tiny_checkpoint()), atol=1e-4)


def test_a_gguf_file_loads_the_same_weights() -> None:
    pytest.importorskip("gguf")
    how: dict[str, Any] = {"add_bos_token": False}  # transformers drops it when it reads a GGUF file
    found = totals(tiny_gguf().parent, gguf_file=tiny_gguf().name, **how)
    assert np.allclose(found, totals(tiny_checkpoint(), **how), atol=1e-4)
