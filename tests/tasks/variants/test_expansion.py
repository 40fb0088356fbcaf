"""Tasks of a run with variants: names, numbers, seeds, and what each variant changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, plan_run, write_choices, write_task

import assay
from assay.core.errors import AssayError, InvalidOption, TaskError
from assay.engine.planning.records import Plan
from assay.tasks.variants.variant_task import describe_variant

LISTED = "{{question}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nAnswer:"


def plan_choices(workspace: Path, keys: dict[str, Any] | None = None, **options: Any) -> Plan:
    folder = workspace / str(len(list(workspace.iterdir())))  # data files of earlier plans are not rewritten
    folder.mkdir()
    path = write_choices(
        folder, **{"doc_to_text": LISTED, "doc_to_choice": ["A", "B"], "rows": 12, **(keys or {})}
    )
    return plan_run(make_model(), tasks=[str(path)], **options)


def read_prompts(plan: Plan, name: str) -> list[str]:
    return [requests[0].prompt.text for _, requests in plan.tasks[name].task.render()]


def test_without_variants_a_run_has_its_tasks_and_its_id(workspace: Path) -> None:
    plan = plan_choices(workspace)
    assert list(plan.tasks) == ["choices"]
    assert plan.groups == {}
    with_variants = plan_choices(workspace, {"variants": [{"name": "short", "doc_to_text": "{{question}}"}]})
    one = plan_choices(
        workspace, {"variants": [{"name": "short", "doc_to_text": "{{question}}"}]}, variants=1
    )
    assert list(with_variants.tasks) == ["choices@base", "choices@short"]
    assert list(one.tasks) == ["choices"]
    assert read_prompts(one, "choices") == read_prompts(plan, "choices")


def test_vary_draws_the_unchanged_prompt_and_four_others(workspace: Path) -> None:
    plan = plan_choices(workspace, vary="order,letters")
    assert list(plan.tasks) == [f"choices@{name}" for name in ("base", "v1", "v2", "v3", "v4")]
    assert plan.groups["choices"].is_family
    assert plan.top == ("choices",)
    plain = plan_choices(workspace)
    assert read_prompts(plan, "choices@base") == read_prompts(plain, "choices")
    assert len({tuple(read_prompts(plan, name)) for name in plan.tasks}) == 5


def test_seeds_and_numbers_of_variants_change_the_run_and_not_the_first_variants(workspace: Path) -> None:
    few = plan_choices(workspace, vary=["order"], variants=2)
    many = plan_choices(workspace, vary="order", variants=4)
    other = plan_choices(workspace, vary="order", variants=2, variant_seed=1)
    assert read_prompts(few, "choices@v1") == read_prompts(many, "choices@v1")
    assert read_prompts(few, "choices@v1") != read_prompts(other, "choices@v1")
    assert len({plan.run_id for plan in (few, many, other, plan_choices(workspace))}) == 4


def test_shots_draw_other_examples_also_from_fixed_samplers(workspace: Path) -> None:
    keys = {"fewshot_split": "test", "fewshot_config": {"sampler": "first_n"}}
    plan = plan_choices(workspace, keys, vary="shots", variants=3, num_fewshot=2)
    first = [read_prompts(plan, name)[5] for name in plan.tasks]
    assert len(set(first)) == 3
    assert all(text.count("Answer:") == 3 for text in first)


def test_few_shot_examples_can_change_their_order_only(workspace: Path) -> None:
    keys = {
        "fewshot_split": "test",
        "fewshot_config": {"sampler": "first_n"},
        "variants": [
            {"name": "reversed", "fewshot_order": "reverse"},
            {"name": "shuffled", "fewshot_order": "shuffle"},
        ],
    }
    plan = plan_choices(workspace, keys, num_fewshot=4)
    split = [read_prompts(plan, name)[8].split("\n\n") for name in plan.tasks]
    assert split[1][:4] == split[0][:4][::-1]
    assert sorted(split[2]) == sorted(split[0])
    assert split[2] != split[0]


def test_templates_delimiters_and_system_messages_change_the_prompt(workspace: Path) -> None:
    keys = {
        "variants": [
            {"name": "short", "doc_to_text": "{{question}}"},
            {"name": "system", "system_instruction": "Be brief."},
            {"name": "line", "target_delimiter": "\n"},
        ]
    }
    plan = plan_choices(workspace, keys)
    assert read_prompts(plan, "choices@short")[0] == "Is 0 even?"
    assert read_prompts(plan, "choices@system")[0].startswith("Be brief.")
    (_, requests) = next(iter(plan.tasks["choices@line"].task.render()))
    assert requests[0].continuation == "\nA"  # type: ignore[union-attr]


def test_vary_template_draws_from_the_task_file(workspace: Path) -> None:
    keys = {
        "variants": [{"name": "short", "doc_to_text": "{{question}}"}, {"name": "long", "doc_to_text": "Q: {{question}}"}]
    }  # fmt: skip
    plan = plan_choices(workspace, keys, vary="template", variants=3)
    drawn = {read_prompts(plan, name)[0] for name in ("choices@v1", "choices@v2")}
    assert drawn == {"Is 0 even?", "Q: Is 0 even?"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vary": "ordre"}, "cannot vary `ordre`"),
        ({"vary": "template"}, "`choices` defines no other templates"),
        ({"vary": "shots"}, "do not vary: shots has no effect"),
        ({"variants": 3}, "`choices` defines no variants"),
        ({"vary": "order", "variants": 1}, "nothing varies with one variant"),
        ({"vary": "letters", "mc_as_generation": True}, "the letters of --mc_as_generation cannot vary"),
        ({"vary": "order", "stop_when": "ci<=5"}, "a stop rule needs one prompt per document"),
    ],
)
def test_options_without_effect_are_errors(workspace: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        plan_choices(workspace, **options)
    assert said in str(caught.value)


def write_letters(workspace: Path, pattern: str, **keys: Any) -> str:
    """Write a task that generates a letter, which a regular expression extracts."""
    rows = [
        {"question": f"Number {n}?", "options": ["x", "y", "z", "w"], "letter": "ABCD"[n % 4]}
        for n in range(6)
    ]
    steps = [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]
    path = write_task(
        workspace,
        "letters",
        rows,
        doc_to_text="{{question}}\nA. {{options[0]}}\nB. {{options[1]}}\nC. {{options[2]}}\nD. {{options[3]}}\nAnswer:",
        doc_to_target="letter",
        metric_list=[{"metric": "exact_match"}],
        filter_list=[{"name": "extract", "filter": steps}],
        **keys,
    )
    return str(path)


@pytest.mark.parametrize(
    "pattern", ["([A-D])", "answer is \\(?([A-J])", "^\\W*([A-Z])\\b", "option number ([A-D])"]
)
def test_letters_that_a_filter_does_not_extract_are_refused(workspace: Path, pattern: str) -> None:
    path = write_letters(workspace, pattern)
    with pytest.raises(TaskError, match="its filter `extract` does not extract") as caught:
        plan_run(make_model(), tasks=[path], vary="letters", variants=5)
    assert "filter_list" in (caught.value.hint or "") and "letters.yaml" in (caught.value.where or "")
    assert len(plan_run(make_model(), tasks=[path], vary="order", variants=3).tasks) == 3


def test_letters_that_filters_extract_can_vary(workspace: Path) -> None:
    path = write_letters(workspace, "(\\w+)\\W*$")
    run = assay.run(model="oracle", tasks=[path], vary="letters", variants=5, no_cache=True)
    assert [one["value"] for one in run.facts["variants"][0]["variants"]] == [1.0] * 5
    digits = [{"function": "regex", "regex_pattern": "([1-4])"}, {"function": "take_first"}]
    own = {
        "name": "digits",
        "choice_letters": ["1", "2", "3", "4"],
        "filter_list": [{"name": "extract", "filter": digits}],
    }
    path = write_letters(workspace, "([A-D])", variants=[own])
    assert len(plan_run(make_model(), tasks=[path]).tasks) == 2


def test_a_factor_without_effect_is_a_note_if_another_has_one(workspace: Path) -> None:
    plan = plan_choices(workspace, vary="order,shots", variants=2)
    assert "choices: `shots` does not vary: there are no few-shot examples" in plan.notes
    unlisted = {"doc_to_text": "{{question}}", "doc_to_choice": "choices"}
    plan = plan_choices(workspace, unlisted, vary="order,system", variants=2)
    assert "choices: `order` does not vary: the prompt does not list the choices" in plan.notes
    (described,) = (
        describe_variant(planned.task, planned.spec.variant)
        for planned in plan.tasks.values()
        if planned.spec.variant is not None and not planned.spec.variant.is_base
    )
    assert described.startswith("system ") and "order" not in described


def test_a_task_without_choices_can_vary_its_examples_and_not_their_order(workspace: Path) -> None:
    path = str(write_task(workspace, fewshot_split="test"))
    plan = plan_run(make_model(), tasks=[path], vary="shots", variants=2, num_fewshot=1)
    assert len(plan.tasks) == 2
    with pytest.raises(AssayError, match="the task has no choices"):
        plan_run(make_model(), tasks=[path], vary="order")


def test_documents_are_selected_by_the_name_of_the_task(workspace: Path) -> None:
    plan = plan_choices(workspace, vary="order", samples={"choices": [1, 3]})
    assert {planned.documents for planned in plan.tasks.values()} == {2}


def test_variants_with_the_same_prompts_count_once(workspace: Path) -> None:
    plan = plan_choices(
        workspace, vary="delimiter"
    )  # without few-shot examples, their delimiter has no effect
    assert [name.partition("@")[2] for name in plan.tasks] == ["base", "v1"]
    assert plan.groups["choices"].members == tuple(plan.tasks)
    assert "choices: variants with the same prompts are left out: v2, v3 as base; v4 as v1" in plan.notes
    unlisted = {"doc_to_text": "{{question}}", "doc_to_choice": "choices"}  # `order` has no effect
    plan = plan_choices(workspace, unlisted, vary="order,delimiter")
    assert len(plan.tasks) == 2


def test_values_of_several_factors_are_combined_in_other_ways_before_they_repeat(workspace: Path) -> None:
    plan = plan_choices(workspace, vary="letters,system", variants=18)
    assert len(plan.tasks) == 17  # four sets of letters and four system messages
    assert len({tuple(read_prompts(plan, name)) for name in plan.tasks}) == 17


def test_a_variant_may_have_the_seed_zero_and_no_system_message(workspace: Path) -> None:
    zero = {"name": "zero", "fewshot_seed": 0, "system_instruction": ""}
    plan = plan_choices(workspace, {"variants": [zero], "fewshot_split": "test"}, num_fewshot=1)
    assert plan.tasks["choices@zero"].spec.config["variant"] == zero
