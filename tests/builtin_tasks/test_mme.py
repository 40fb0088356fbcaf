"""MME: pairs of questions, and points for pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import columns, helper, picture, put_dataset, run_task
from tests.builtin_tasks.recorded import Recorded

mme = helper("mme")

ROWS = [
    {"question_id": f"{category}/{at}.png", "category": category, "question": question, "answer": answer}
    for category, at in (("count", 1), ("count", 2), ("OCR", 1), ("code_reasoning", 1))
    for question, answer in (
        (f"Is it {category} {at}? Please answer yes or no.", "Yes"),
        (f"Is it not {category} {at}? Please answer yes or no.", "No"),
    )
]
FEATURES = {"question_id": "string", "category": "string", "question": "string", "answer": "string"}


def one(category: str, picture_name: str, score: float) -> dict[str, Any]:
    return {"category": category, "question_id": picture_name, "score": score}


@pytest.mark.parametrize(
    ("response", "read"),
    [
        ("Yes", "yes"),
        ("yes.", "yes"),
        (" No.", "no"),
        ("Y", "yes"),
        ("n", "no"),
        ("x", "other"),
        ("Yes, there is", "yes"),
        ("no there is not", "no"),
        ("It is, yes", "other"),
        ("I know", "other"),
        ("", "other"),
    ],
)
def test_a_response_is_yes_or_no_by_how_it_begins(response: str, read: str) -> None:
    assert mme.read_answer(response) == read


def test_a_pair_gives_its_share_and_a_bonus_when_both_are_right() -> None:
    judged = [one("count", "a", 1.0), one("count", "a", 1.0), one("count", "b", 1.0), one("count", "b", 0.0)]
    assert mme.mme_by_category(judged) == {"count": (200.0 + 50.0) / 2}


def test_categories_add_up() -> None:
    judged = [one(category, "a", 1.0) for category in ("count", "OCR") for _ in range(2)]
    assert mme.mme_total(judged) == 400.0


def test_a_picture_with_half_a_pair_does_not_count() -> None:
    judged = [one("count", "a", 1.0), one("count", "a", 0.0), one("count", "b", 1.0)]
    assert mme.mme_by_category(judged) == {"count": 50.0}


def test_no_pair_at_all_is_said() -> None:
    with pytest.raises(ValueError, match="no pair was scored"):
        mme.mme_total([one("count", "a", 1.0)])


def test_three_questions_about_a_picture_are_an_error() -> None:
    with pytest.raises(ValueError, match="more about `a`"):
        mme.mme_total([one("count", "a", 1.0)] * 3)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [({"answer": "maybe"}, "neither yes nor no"), ({"category": "taste"}, "no category `taste`")],
)
def test_data_that_is_not_mme_is_not_scored(changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        mme.mme_process_results({**ROWS[0], **changed}, ["yes"])


def test_a_prompt_with_its_own_wish_replaces_the_one_of_the_dataset() -> None:
    assert mme.mme_doc_to_text(ROWS[0]) == "Is it count 1? Please answer yes or no."
    assert (
        mme.mme_doc_to_text(ROWS[0], {"pre_prompt": "", "post_prompt": " Answer:"})
        == "Is it count 1? Answer:"
    )


def test_a_run_gives_perception_cognition_and_every_category(tmp_path: Path) -> None:
    rows = [{**row, "image": picture(at // 2)} for at, row in enumerate(ROWS)]
    put_dataset(tmp_path, "lmms-lab-encoder/MME", rows, features=columns(**FEATURES, image="image"))
    said = iter(["Yes", "No", "Yes", "Yes", "No", "No", "Yes", "No"])
    results, asked = run_task("mme", tmp_path, lambda request: next(said))
    # count: both right, then one right: (200 + 50) / 2; OCR: one right; code_reasoning: both right
    assert results["mme_perception_score,none"] == 125.0 + 50.0
    assert results["mme_cognition_score,none"] == 200.0
    assert results["mme_category_score,none"] == {"count": 125.0, "OCR": 50.0, "code_reasoning": 200.0}
    assert asked[0].prompt.text == "Is it count 1?\nAnswer the question using a single word or phrase."
    assert asked[0].prompt.media == asked[1].prompt.media


@pytest.mark.parity
def test_it_asks_and_scores_as_lmms_eval_does(tmp_path: Path) -> None:
    Recorded("mme", tmp_path).check_everything("mme_perception_score", "mme_cognition_score")
