"""MATH: answers compared as texts, and symbolically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import helper, put_configs
from tests.builtin_tasks.recorded_lm import builtin_index, replayed_group

import assay
from assay.tasks.files.selection import select_tasks
from assay.testing import ScriptedModel

boxed = helper("math", "boxed")
hendrycks = helper("math", "hendrycks")

ROWS = [
    {
        "problem": "What is $1/4 + 1/4$?",
        "level": "Level 1",
        "type": "Algebra",
        "solution": r"It is $\boxed{\frac{1}{2}}$.",
    },
    {
        "problem": "How long is it?",
        "level": "Level 2",
        "type": "Algebra",
        "solution": r"So $x = \boxed{10{,}000}$ cm.",
    },
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    put_configs(root, "EleutherAI/hendrycks_math", {"algebra": {"train": ROWS, "test": ROWS}})
    return root


def run(model: Any, task: str, hub: Path, tmp_path: Path) -> dict[str, Any]:
    done = assay.run(model=model, tasks=[task], data_root=str(hub), output_path=str(tmp_path), no_cache=True)
    found: dict[str, Any] = done.results[task]
    return found


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"$\boxed{1}$ no, $\boxed{\frac{a}{b}}$.", r"\frac{a}{b}"),
        (r"so $\boxed 3$ it is", "3"),
        (r"$\boxed{}$", ""),
    ],
)
def test_the_answer_is_in_the_last_box(solution: str, answer: str) -> None:
    assert boxed.boxed_answer(solution) == answer


@pytest.mark.parametrize("solution", ["no box", r"$\boxed{1", r"$\fbox{1}$"])
def test_a_solution_without_an_answer_is_an_error(solution: str) -> None:
    with pytest.raises(ValueError, match="box"):
        boxed.boxed_answer(solution)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (r"\dfrac{1}{2}", "0.5", True),
        (r"\frac1{72}", r"\frac{1}{72}", True),
        (r"\frac12x", r"\frac{1}{2}x", True),
        ("3/4", r"\frac{3}{4}", True),
        ("03/4", r"\frac{3}{4}", False),
        (r"k = \sqrt3", r"\sqrt{3}", True),
        (r"12\text{ cm}", "12", True),
        (r"90^\circ", "90", True),
        (".5", r"\frac{1}{2}", True),
        (r"\sqrt", r"\sqrt", True),  # no normal form: as they are
        (r"50\%", "50", True),
        ("1", "1.0", False),
    ],
)
def test_texts_are_the_same_but_for_spelling(one: str, other: str, same: bool) -> None:
    assert hendrycks.is_same(one, other) is same


@pytest.mark.usefixtures("workspace")
def test_right_answers_get_full_marks_without_examples(hub: Path, tmp_path: Path) -> None:
    assert run("oracle", "hendrycks_math_algebra", hub, tmp_path)["exact_match,none"] == 1.0
    model = ScriptedModel(lambda request: r" It is $\dfrac12$, I think.", window=1)
    assert run(model, "hendrycks_math_algebra", hub, tmp_path / "two")["exact_match,none"] == 0.5
    assert model.asked[0].prompt.text == "Problem: What is $1/4 + 1/4$?\nAnswer:"


def test_both_groups_have_seven_subjects() -> None:
    for group in ("minerva_math", "hendrycks_math"):
        assert len(select_tasks([group], builtin_index()).tasks) == 7


class TestMinerva:
    @pytest.fixture(autouse=True)
    def needs_sympy(self) -> None:
        for package in ("sympy", "antlr4", "math_verify"):
            pytest.importorskip(package, reason="symbolic equality, the extra `math`")

    @pytest.mark.parametrize(
        ("answer", "normal"),
        [
            (r"x = $\frac12$ cm", r"\frac{1}{2}"),
            (r"$\left(0,1\right)$", r"\left(0,1\right)"),
            ("10,000 dollars", "10000"),
            (r"\text{Monday}", "Monday"),
            (r"\sqrt[3]8", r"\sqrt[3]{8}"),
            (r"45^\circ", "45"),
        ],
    )
    def test_what_is_written_around_an_answer_goes(self, answer: str, normal: str) -> None:
        assert helper("math", "minerva").normal_form(answer) == normal

    @pytest.mark.parametrize(
        ("one", "other", "equal"),
        [
            (r"\frac{1}{2}", "0.5", True),
            ("2x+2", "2(x+1)", True),
            (r"\sqrt{8}", r"2\sqrt{2}", True),
            ("(1,2)", "(1,2)", True),
            ("(1,2)", "(1, 2)", False),  # SymPy reads no pairs, so they must be the same text
            ("7", "8", False),
            ("", "", False),
            (r"\frac{", "1", False),
        ],
    )
    def test_expressions_are_equal_when_their_difference_is_nothing(
        self, one: str, other: str, equal: bool
    ) -> None:
        assert helper("math", "minerva").is_equal(one, other) is equal

    @pytest.mark.usefixtures("workspace")
    def test_the_announced_answer_counts_and_any_answer_that_verifies(
        self, hub: Path, tmp_path: Path
    ) -> None:
        said = {
            "What is": " $2/4$. Final Answer: The final answer is $0.5$. I hope it is correct.",
            "How long": r" It is $\boxed{10000}$.",
        }
        model = ScriptedModel(
            lambda request: next(
                text for words, text in said.items() if words in request.prompt.text.rpartition("Problem:")[2]
            ),
            window=1,
        )
        results = run(model, "minerva_math_algebra", hub, tmp_path)
        assert results["exact_match,none"] == 0.5
        assert results["math_verify,none"] == 1.0
        text = model.asked[0].prompt.text
        assert text.startswith("Problem:\nFind the domain of the expression  $\\frac{\\sqrt{x-2}}")
        assert text.count("I hope it is correct.") == 4
        assert text.endswith("I hope it is correct.\n\nProblem:\nWhat is $1/4 + 1/4$?\n\nSolution:")

    @pytest.mark.parity
    @pytest.mark.slow
    def test_the_group_reports_what_lm_eval_reports(self) -> None:
        assert replayed_group("minerva_math").first is None
