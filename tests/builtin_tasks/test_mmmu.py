"""MMMU: pictures in the text, letters and open answers, domains and subjects."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import columns, helper, picture, put_dataset, run_task
from tests.builtin_tasks.recorded import Recorded, known_to

from assay.core.records.messages import Image, Text

mmmu = helper("mmmu")
scoring = helper("mmmu", "scoring")

CHOICES = {"A": "a red apple", "B": "the blue bridge", "C": "candles"}
WISH = {"multiple_choice_prompt": "Pick a letter.", "open_ended_prompt": "One word."}


def document(
    question: str, options: str = "[]", kind: str = "multiple-choice", **more: Any
) -> dict[str, Any]:
    return {"question": question, "options": options, "question_type": kind, **more}


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("B.", "B"),
        ("(B)", "B"),
        ("(A) is wrong, so (B)", "B"),
        ("A or B ?", "B"),
        ("I believe this shows the blue bridge at night", "B"),
        ("Not the blue bridge but rather a red apple", "A"),
        ("The answer is B.", "B"),
        ("Answer:C.", "C"),
    ],
)
def test_a_letter_is_read(response: str, letter: str) -> None:
    random.seed(3)
    assert scoring.read_letter(response, CHOICES) == letter


def test_who_names_nothing_gets_a_letter_by_chance() -> None:
    random.seed(0)
    drawn = {scoring.read_letter("no idea", CHOICES) for _ in range(50)}
    assert drawn == {*CHOICES}


@pytest.mark.parametrize(
    ("response", "read"),
    [
        ("12", [12.0]),
        ("The answer is 12.", [12.0]),
        ("It is 1,250 dollars", ["1,250 dollars", 1250.0, 250.0]),  # the end of a number counts as one too
        ("North", ["north"]),
        ("so x = 3.456", [3.46]),
        ("First line\nThe result is b", [" b", "b "]),
        ("about 1e3 units", ["about 1e3 units", 1000.0, 3.0]),
        ("", [""]),
    ],
)
def test_every_answer_a_text_may_mean_is_read(response: str, read: list[Any]) -> None:
    assert scoring.read_open_answer(response) == read


@pytest.mark.parametrize(
    ("response", "accepted", "right"),
    [
        ("It is 12.00", ["12"], True),
        ("12.5", ["12"], False),
        ("the north pole", ["North"], True),
        ("north", ["south", "north"], True),
        ("abc", ["b"], False),
        ("The answer is b", ["B"], True),
    ],
)
def test_an_open_answer_is_right(response: str, accepted: list[str], right: bool) -> None:
    assert scoring.is_right_open_answer(scoring.read_open_answer(response), accepted) is right


@pytest.mark.parametrize(
    ("name", "subject"), [("validation_Art_Theory_12", "Art_Theory"), ("dev_Math_3", "Math")]
)
def test_the_subject_is_in_the_name(name: str, subject: str) -> None:
    assert scoring.subject_of(name) == subject


def test_a_name_without_a_subject_is_an_error() -> None:
    with pytest.raises(ValueError, match="no subject in `question-7`"):
        scoring.subject_of("question-7")


def test_there_are_thirty_subjects_in_six_domains() -> None:
    assert (len(scoring.DOMAIN_OF), len(scoring.DOMAINS)) == (30, 6)


def parts(made: list[dict[str, Any]]) -> list[Any]:
    (message,) = made
    return [
        part["text"] if part["type"] == "text" else part["url"].getpixel((0, 0))[0]
        for part in message["content"]
    ]


def test_a_picture_stands_wherever_the_text_names_it() -> None:
    doc = document(
        "Compare <image 2> with <image 1> and <image 2> again.", "['<image 3>', 'none']",
        image_1=picture(1), image_2=picture(2), image_3=picture(3),
    )  # fmt: skip
    made = parts(mmmu.mmmu_doc_to_messages(doc, WISH))
    assert made == ["Compare", 2, "with", 1, "and", 2, "again.\nA.", 3, "B. none\n\nPick a letter."]
    assert [one.getpixel((0, 0))[0] for one in mmmu.mmmu_doc_to_visual(doc)] == [1, 2, 3]


def test_an_open_question_has_its_own_wish() -> None:
    doc = document("What is it? <image 1>", kind="open", image_1=picture(1))
    assert mmmu.mmmu_doc_to_text(doc, WISH) == "What is it? <image 1>\n\nOne word."
    assert parts(mmmu.mmmu_doc_to_messages(doc, WISH)) == ["What is it?", 1, "One word."]


ROWS = [
    ("validation_Accounting_1", "multiple-choice", "['apple', 'bridge']", "B", "Which is <image 1>?"),
    ("validation_Accounting_2", "open", "[]", "12", "How many in <image 1>?"),
    ("validation_Math_1", "multiple-choice", "['<image 1>', '<image 2>']", "A", "Which?"),
]


def test_a_run_reports_accuracy_domains_and_subjects(tmp_path: Path) -> None:
    names = ("id", "question_type", "options", "answer", "question")
    rows = [
        {**dict(zip(names, row, strict=True)), "image_1": picture(at), "image_2": picture(100 + at)}
        for at, row in enumerate(ROWS)
    ]
    features = columns(**dict.fromkeys(names, "string"), image_1="image", image_2="image")
    put_dataset(tmp_path, "lmms-lab-encoder/MMMU", rows, features=features, split="validation")
    said = iter(["(B)", "It is 13", "A"])
    results, asked = run_task("mmmu_val", tmp_path, lambda request: next(said))
    assert results["mmmu_acc,none"] == 0.66667
    assert results["mmmu_domain_acc,none"] == {"Business": 0.5, "Science": 1.0}
    assert results["mmmu_subject_acc,none"] == {"Accounting": 0.5, "Math": 1.0}
    (message,) = asked[2].prompt.messages
    assert [type(part) for part in message.parts] == [Text, Image, Text, Image, Text]


@pytest.mark.parity
def test_it_asks_and_scores_as_lmms_eval_does(tmp_path: Path) -> None:
    recorded = Recorded("mmmu_val", tmp_path)
    recorded.check_prompts()
    recorded.check_messages()
    judged = recorded.judged()
    assert len(judged) > 10
    for ours, theirs in judged:
        own, other = known_to(theirs, ours)["mmmu_acc"], theirs["mmmu_acc"]
        del own["score"]  # theirs is made when they sum up
        for evidence in (own, other):  # in theirs, the order within an open answer is that of a set
            evidence["parsed_pred"] = [sorted(map(str, one)) for one in evidence["parsed_pred"]]
        assert own == other
    first = judged[: recorded.record["n_eval_docs"]]
    recorded.check_results({"mmmu_acc": [ours["mmmu_acc"] for ours, _ in first]})
