"""Datasets and a model that replace those of the documentation."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from tests.builtin_tasks.fake_hub import columns, picture, put_configs, put_dataset

from assay.core.records.messages import Audio, Image, Video
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import LogProbability, Outcome, Response
from assay.models.oracle import OracleModel

__all__ = ["StandIn", "audio", "image", "write_datasets", "video"]

image = Image(digest="image", load=picture)
audio = Audio(digest="audio", load=lambda: (np.zeros(800, np.float32), 8000))
video = Video(digest="video", load=lambda: [picture(shade) for shade in range(10)])


class StandIn(OracleModel):
    """Answers a fraction of the documents correctly, under the name `name`.

    The name and the document decide which ones, so two models agree on some documents and differ on others.
    """

    def __init__(self, *, name: str = "base", right: float = 0.6, draw: int = 0) -> None:
        super().__init__()
        self._name, self._right, self._draw = name, right, draw

    @property
    def name(self) -> str:
        return self._name

    async def identify(self) -> dict[str, str]:
        return {"name": self._name, "right": str(self._right), "draw": str(self._draw)}

    def _answer_one(self, request: Request) -> Outcome:
        outcome = super()._answer_one(request)
        place = f"{self._name}/{self._draw}/{request.task}/{request.document}"
        if zlib.crc32(place.encode()) % 1000 < 1000 * self._right or not isinstance(outcome, Response):
            return outcome
        if isinstance(request, Generate):
            return Response(request_id=request.id, value="I do not know.")
        value = outcome.value
        worse = LogProbability(-1000.0 - value.total, False) if isinstance(value, LogProbability) else value
        return Response(request_id=request.id, value=worse)


def write_datasets(root: Path) -> None:
    """Write small datasets with the names and columns of large ones, in the layout of the hub."""
    put_configs(root, "openai/gsm8k", {"main": {"train": _sums(8), "test": _sums(16)}})
    letters = {split: _letters() for split in ("train", "test")}
    put_configs(root, "allenai/ai2_arc", dict.fromkeys(("ARC-Easy", "ARC-Challenge"), letters))
    put_configs(root, "openai/openai_humaneval", {"openai_humaneval": {"test": [_PROGRAM]}})
    charts = [
        {"type": "human_test", "question": f"{n}?", "answer": "3", "image": picture(n)} for n in range(3)
    ]
    features = columns(type="string", question="string", answer="string", image="image")
    put_dataset(root, "lmms-lab-encoder/ChartQA", charts, features=features)


_PROGRAM = {
    "task_id": "own/0",
    "prompt": 'def add(a, b):\n    """Add two numbers."""\n',
    "canonical_solution": "    return a + b\n",
    "test": "def check(candidate):\n    assert candidate(7, 2) == 9\n",
    "entry_point": "add",
}


def _sums(count: int) -> list[dict[str, Any]]:
    return [
        {
            "subject": ("pens", "money")[n % 2],
            "question": f"Ben has {n} pens and finds {n + 2}. How many has he?",
            "answer": f"He has {n} + {n + 2} = {2 * n + 2}.\n#### {2 * n + 2}",
        }
        for n in range(3, 3 + count)
    ]


def _letters() -> list[dict[str, Any]]:
    return [
        {
            "id": str(n),
            "subject": ("odd", "even")[n % 2],
            "question": f"Which number comes after {n}?",
            "choices": {"text": [str(n + k) for k in (2, 1, 5, 9)], "label": list("ABCD")},
            "answerKey": "B",
        }
        for n in range(16)
    ]
