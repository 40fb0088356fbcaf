"""Replies that are no answers: a few of those that `make soak` tries."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flows.lying_server import BEHAVIOURS, check_behaviour

pytestmark = pytest.mark.server

SAMPLE = [
    "chat: finish error",
    "chat: choice error",
    "chat: error beside the answer",
    "chat: status 429 for ever",
    "text: finish abort",
    "text: gzip bomb",
    "scores: positive",
    "scores: absurd",
    "responses: status failed",
    "responses: status incomplete",
    "messages: stop model_context_window_exceeded",
    "messages: deep JSON",
    "gemini: finish OTHER",
    "gemini: endless body",
]


def test_there_are_enough_behaviours() -> None:
    assert len(BEHAVIOURS) >= 150
    assert set(SAMPLE) <= BEHAVIOURS.keys()


@pytest.mark.parametrize("name", SAMPLE)
def test_a_lie_is_never_an_answer(name: str, tmp_path: Path) -> None:
    check_behaviour(tmp_path, name)
