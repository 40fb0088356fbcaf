"""ChartQA: relaxed accuracy, in two halves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builtin_tasks.fake_hub import columns, helper, picture, pictures, put_dataset, run_task
from tests.builtin_tasks.recorded import Recorded

chartqa = helper("chartqa")


@pytest.mark.parametrize(
    ("answer", "target", "right"),
    [
        ("14", "14", True),
        ("105", "100", True),
        ("95", "100", True),
        ("105.1", "100", False),
        ("-100", "100", False),
        ("50%", "0.5", True),
        ("0.5", "50%", True),
        ("50", "50%", False),
        ("0", "0", True),
        ("0.0", "0", False),
        ("Yes", "yes", True),
        ("yes.", "yes", False),
        ("about 14", "14", False),
        ("[2011, 2013]", "[2011, 2013]", True),
        ("", "14", False),
        ("1e2", "100", True),
    ],
)
def test_numbers_may_be_a_twentieth_off_and_words_not_at_all(answer: str, target: str, right: bool) -> None:
    assert chartqa.is_relaxed_match(answer, target) is right


def test_a_run_reports_all_questions_and_each_half(tmp_path: Path) -> None:
    kinds = ["human_test", "human_test", "augmented_test"]
    answers = ["14", "Lamb", "0.57"]
    rows = [
        {"type": kind, "question": f"Question {n}?", "answer": answer, "image": picture(n)}
        for n, (kind, answer) in enumerate(zip(kinds, answers, strict=True))
    ]
    features = columns(type="string", question="string", answer="string", image="image")
    put_dataset(tmp_path, "lmms-lab-encoder/ChartQA", rows, features=features)
    said = iter([" 14.2 ", "Corn", "0.56"])
    results, asked = run_task("chartqa", tmp_path, lambda request: next(said))
    assert results["relaxed_overall,none"] == pytest.approx(2 / 3)
    assert results["relaxed_human_split,none"] == 0.5
    assert results["relaxed_augmented_split,none"] == 1.0
    assert asked[0].prompt.text == "Question 0?\nAnswer the question with a single word."
    assert [picture.size for picture in pictures(asked[0])] == [(8, 6)]


@pytest.mark.parity
def test_it_asks_and_scores_as_lmms_eval_does(tmp_path: Path) -> None:
    Recorded("chartqa", tmp_path).check_everything("relaxed_overall", "relaxed_human_split")
