"""SEED-Bench by likelihood: the likeliest choice after pictures and question."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builtin_tasks.fake_hub import columns, helper, picture, put_dataset, run_task

import assay
from assay.core.records.requests import Likelihood, Request
from assay.core.records.responses import LogProbability

seedbench = helper("seedbench")

CHOICES = ["One", "Two", "Three", "Four"]


def put_rows(root: Path, frames: list[int]) -> None:
    rows = [
        {
            "question": f"How many towels are in picture {at}?",
            **{f"choice_{letter}": text for letter, text in zip("abcd", CHOICES, strict=True)},
            "answer": "ABCD"[at],
            "data_type": "image" if count == 1 else "video",
            "question_id": str(at),
            "image": [picture(10 * at + frame) for frame in range(count)],
        }
        for at, count in enumerate(frames)
    ]
    texts = {"question", "answer", "data_type", "question_id", *(f"choice_{letter}" for letter in "abcd")}
    features = columns(**dict.fromkeys(texts, "string"), image="image[]")
    put_dataset(root, "lmms-lab-encoder/SEED-Bench", rows, features=features)


def test_the_most_likely_choice_is_the_answer(tmp_path: Path) -> None:
    put_rows(tmp_path, [1, 1, 3])

    def likes_two(request: Request) -> LogProbability:
        assert isinstance(request, Likelihood)
        return LogProbability(-1.0 if request.continuation == " Two" else -2.0, False)

    results, asked = run_task("seedbench_ppl", tmp_path, likes_two)
    assert results["acc,none"] == pytest.approx(1 / 3)
    first = [request for request in asked if request.document == 0]
    assert [request.continuation for request in first if isinstance(request, Likelihood)] == [
        f" {text}" for text in CHOICES
    ]
    assert {request.prompt.text for request in first} == {"How many towels are in picture 0? Answer :"}
    assert [len(request.prompt.media) for request in asked] == [1] * 8 + [3] * 4


def test_a_text_that_is_there_twice_is_right_once() -> None:
    document = {"choice_a": "red", "choice_b": "red", "choice_c": "blue", "choice_d": "green", "answer": "B"}
    assert seedbench.seed_doc_to_target(document) == 1


def test_the_embedded_model_can_do_it(tmp_path: Path) -> None:
    put_rows(tmp_path, [1, 2])
    run = assay.run(
        tasks=["seedbench_ppl"], data_root=str(tmp_path), output_path=str(tmp_path / "runs"), no_cache=True
    )
    (estimate,) = run.estimates
    assert (estimate.metric, estimate.scored, estimate.failed) == ("acc", 2, 0)
