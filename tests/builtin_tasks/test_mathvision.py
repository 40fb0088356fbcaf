"""MATH-Vision: finding the answer in a solution, and whether it means the right thing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builtin_tasks.fake_hub import columns, helper, picture, put_dataset, run_task
from tests.builtin_tasks.recorded import PROJECT, Recorded

import assay

mathvision = helper("mathvision")

REQUEST = 'Please solve the problem step by step and put your answer in one "\\boxed{}".'


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("\\boxed{6}", "6"),
        ("First \\boxed{7}, no: \\boxed{6}.", "6"),
        ("So $x = \\boxed{\\dfrac{1}{2}}$.", "\\frac{1}{2}"),
        ("\\boxed{x = 12}", "12"),
        ("\\boxed{90^\\circ}", "90"),
        ("\\boxed{\\text{C}}", "c"),
        ("\\boxed{(C)}", "c"),
        ("It must be (C).", "c"),
        ("B\nbecause it fits", "b"),
        ("The answer is 12. Look at the picture.", "12"),
        ("the final answer is 3/4", "\\frac{3}{4}"),
        ("The sum is 12.", "12"),
        ("\\boxed{5 km}", "5"),
        ("\\boxed{.5}", "\\frac{1}{2}"),
        ("\\boxed{\\sqrt2}", "\\sqrt{2}"),
        ("", ""),
    ],
)
def test_the_answer_is_found(response: str, answer: str) -> None:
    assert mathvision.read_answer(response).replace("0.5", "\\frac{1}{2}") == answer


@pytest.mark.parametrize(
    ("target", "answer", "same"),
    [
        ("6", "6", True),
        ("C", "c", True),
        ("0.5", "\\frac{1}{2}", True),
        ("$\\frac{1}{2}$", "1:2", True),
        ("1000", "1,000", True),
        ("3.14", "3.141", True),
        ("3.14", "3.146", False),
        ("12", "3\\times4", True),
        ("1.5", "2-\\frac{1}{2}", True),
        ("(1,2)", "(1.0,2)", True),
        ("(1,2)", "[1,2]", False),
        ("(1,2)", "(1,2,3)", False),
        ("(1,x)", "(1,x)", True),
        ("x", "y", False),
        ("1", "\\frac{1}{0}", False),
        ("1", "9^{999999999}", False),
        ("", "", False),
        ("4", "__import__('os')", False),
    ],
)
def test_texts_are_the_same_when_their_values_are(target: str, answer: str, same: bool) -> None:
    assert mathvision.is_same(target, answer) is same


def test_a_choice_is_right_by_its_letter_and_by_its_text() -> None:
    document = {"answer": "B", "options": ["$\\frac{1}{3}$", "$\\frac{1}{4}$"]}

    def score(response: str) -> float:
        made = mathvision.mathvision_process_results(document, [response])
        return float(made["mathvision_standard_eval"]["score"])

    assert [score(f"\\boxed{{{text}}}") for text in ("B", "0.25", "1/4", "A", "1/3")] == [1, 1, 1, 0, 0]


def test_a_run_reports_per_cent_subjects_and_levels(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "question": "How many?\n<image1>", "options": [], "answer": "6", "level": 1, "subject": "counting"},
        {"id": "2", "question": "Which?", "options": ["1", "2"], "answer": "B", "level": 2, "subject": "logic"},
        {"id": "3", "question": "How far?", "options": [], "answer": "0.5", "level": 2, "subject": "logic"},
    ]  # fmt: skip
    features = columns(
        id="string",
        question="string",
        options="string[]",
        decoded_image="image",
        answer="string",
        level="int64",
        subject="string",
    )
    rows = [{**row, "decoded_image": picture(at)} for at, row in enumerate(rows)]
    put_dataset(tmp_path, "MathLLMs/MathVision", rows, features=features, split="testmini")
    said = iter(["I count.\n\nSo \\boxed{6}", "The answer is A.", "\\boxed{\\frac12} or \\boxed{1/2}"])
    results, asked = run_task("mathvision_testmini", tmp_path, lambda request: next(said))
    assert results["mathvision_standard_eval,none"] == 66.67
    assert results["mathvision_subject_eval,none"] == {"counting": 100.0, "logic": 50.0}
    assert results["mathvision_level_eval,none"] == {"1": 100.0, "2": 50.0}
    assert asked[0].prompt.text == f"{REQUEST}How many?\n<image1>"
    choices = (
        "Choices: A. 1\nB. 2\nAnswer the question with the option's letter from the given choices directly."
    )
    assert asked[1].prompt.text == f"{REQUEST}Which?\n{choices}"


@pytest.mark.parity
@pytest.mark.parametrize("task", ["mathvision_testmini", "mathvision_test"])
def test_it_asks_and_scores_as_lmms_eval_does(task: str, tmp_path: Path) -> None:
    recorded = Recorded(task, tmp_path)
    for request in recorded.record["requests"]:
        assert request["generation_kwargs"].pop("until") == ["\n\n"]  # the difference the README tells of
        request["generation_kwargs"]["until"] = []
    recorded.check_prompts()
    recorded.check_messages()
    judged = recorded.judged()
    assert len(judged) > 10
    for ours, theirs in judged:
        assert [bool(ours["mathvision_standard_eval"]["score"])] == theirs["mathvision_standard_eval"][
            "scores"
        ]
    first = judged[: recorded.record["n_eval_docs"]]
    recorded.check_results(
        {"mathvision_standard_eval": [ours["mathvision_standard_eval"] for ours, _ in first]}
    )


@pytest.mark.parametrize("task", ["chartqa", "mathvision_testmini"])
def test_it_runs_on_the_real_data_with_the_embedded_model(task: str, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    hub = Path(os.environ.get("ASSAY_SHARED") or PROJECT.parent / "shared") / "hub"
    if not hub.is_dir():
        pytest.skip("no datasets: set ASSAY_SHARED to the folder that holds hub/")
    run = assay.run(tasks=[task], data_root=str(hub), limit=2, output_path=str(tmp_path), no_cache=True)
    assert {(one.scored, one.unscored, one.failed) for one in run.estimates if one.value is not None} == {
        (2, 0, 0)
    }
