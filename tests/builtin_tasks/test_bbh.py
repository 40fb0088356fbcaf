"""BIG-Bench Hard without examples: twenty-seven tasks, and what counts as the answer in a chain of thought."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builtin_tasks.fake_hub import helper, put_configs
from tests.builtin_tasks.recorded_lm import builtin_index

import assay
from assay.tasks.files.selection import select_tasks
from assay.testing import ScriptedModel

filters = helper("bbh", "filters")
CHOICES = {"input": "Which one?\nOptions:\n(A) a red ball\n(B) a ball\n(C) isn't there"}


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Not (A), so (B).", "(B)"),
        ("The thing that ISNT there", "(C)"),
        ("It's a red ball, of course", "(A)"),  # not its part "a ball"
        ("A red ball is not it, but a ball is.", "(B)"),
        ("The answer: C", "(C)"),
        ("The answer: D", "[invalid]"),
        ("", "[invalid]"),
    ],
)
def test_a_choice_is_known_by_its_letter_or_its_text(response: str, answer: str) -> None:
    assert filters.LetteredChoice().apply([[response]], [CHOICES]) == [[answer]]


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("1 + 2 = 3", "3"),
        ("-7", "-7"),
        ("I counted twelve.", "12"),
        ("That makes one hundred and twenty two", "122"),
        ("Two dogs. In all eight hundred thousand", "800000"),
        ("six", "[invalid]"),  # as lm-eval: see the README
        ("many", "[invalid]"),
    ],
)
def test_the_last_number_counts_in_words_only_without_digits(response: str, answer: str) -> None:
    assert filters.LastNumber().apply([[response]], [{}]) == [[answer]]


def test_words_are_in_the_order_in_which_they_are_named_last() -> None:
    document = {"input": "Sort these. List: pear fig kiwi"}
    assert filters.SortedWords().apply([["pear, kiwi... so fig kiwi pear", "none"]], [document]) == [
        ["fig kiwi pear", ""]
    ]
    with pytest.raises(ValueError, match="no list of words"):
        filters.SortedWords().apply([["a"]], [{"input": "Sort these: b a"}])


def test_the_group_has_all_twenty_seven() -> None:
    assert len(select_tasks(["bbh_cot_zeroshot"], builtin_index()).tasks) == 27


@pytest.mark.usefixtures("workspace")
def test_a_run_reports_strict_and_flexible_for_tasks_and_group(tmp_path: Path) -> None:
    put_configs(
        tmp_path / "hub",
        "SaylorTwift/bbh",
        {
            "navigate": {"test": [{"input": "Turn around. Do you return?", "target": "Yes"}]},
            "snarks": {"test": [{"input": "Which?\n(A) Fine\n(B) Sure, great", "target": "(B)"}] * 3},
        },
    )
    said = {
        "Turn around. Do you return?": " Hm. The answer is Yes.",
        "Which?\n(A) Fine\n(B) Sure, great": " I think it is (B)",
    }
    model = ScriptedModel(
        lambda request: next(text for asked, text in said.items() if asked in request.prompt.text), window=1
    )
    group = tmp_path / "two.yaml"
    group.write_text(
        "group: two\ntask: [bbh_cot_zeroshot_navigate, bbh_cot_zeroshot_snarks]\naggregate_metric_list:\n"
        "  - metric: exact_match\n    weight_by_size: true\n    filter_list: [strict-match, flexible-extract]\n"
    )
    results = assay.run(
        model=model, tasks=[str(group)], data_root=str(tmp_path / "hub"), no_cache=True
    ).results
    assert results["bbh_cot_zeroshot_navigate"]["exact_match,strict-match"] == 1.0
    assert results["bbh_cot_zeroshot_snarks"]["exact_match,strict-match"] == 0.0
    assert results["two"]["exact_match,strict-match"] == 0.25
    assert results["two"]["exact_match,flexible-extract"] == 1.0
    assert model.asked[0].prompt.text == (
        "Given a series of navigation instructions, determine whether one would end up back at the starting "
        "point.\n\nQ: Turn around. Do you return?\nA: Let's think step by step."
    )
