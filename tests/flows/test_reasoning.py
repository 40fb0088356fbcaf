"""A server whose answers come with reasoning gets the scores of its answers alone."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.assay_compat.judge_server import serving

import assay

pytest.importorskip("langdetect", reason="needs the extra `ifeval`")

FORMATS = {
    "plain": "{answer}",
    "think": "<think>\nNo commas, and 300 words. Question: is it?\n\n</think>\n\n{answer}",
    "open": "No commas,\n\nand 300 words</think>{answer}",
    "mistral": "[THINK]a, b, c[/THINK]{answer}",
    "harmony": "<|channel|>analysis<|message|>a, b<|end|><|start|>assistant<|channel|>final<|message|>{answer}",
}


def answer(payload: dict[str, Any]) -> str:
    """An answer that follows some instructions: the same for the same prompt."""
    prompt = payload["messages"][-1]["content"]
    words = [prompt.split()[index % len(prompt.split())] for index in range(40)]
    return (
        "*highlight* ".join(words)
        if hashlib.sha256(prompt.encode()).digest()[0] % 2
        else " ".join(words).lower()
    )


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "plain"])
def test_ifeval_scores_the_answers_alone(name: str) -> None:
    def score(template: str) -> dict[tuple[str, str], Any]:
        with serving(lambda payload, number: template.replace("{answer}", answer(payload))) as server:
            run = assay.run(
                model="openai",
                model_args={"model": "m", "base_url": server.url, "probe": False},
                tasks=["firststeps_ifeval"],
                limit=12,
                apply_chat_template=True,
                no_cache=True,
            )
        return {(one.metric, one.pipeline): (one.value, one.scored) for one in run.estimates}

    expected = score(FORMATS["plain"])
    assert 0 < next(iter(expected.values()))[0] < 1
    assert score(FORMATS[name]) == expected
