"""MMLU: fifty-seven subjects from one template, four groups, one number over all questions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import FOLDER, put_configs
from tests.builtin_tasks.recorded_lm import builtin_index, replayed_group

import assay
from assay.core.records.requests import Likelihood, Request
from assay.core.records.responses import LogProbability
from assay.tasks.files.selection import select_tasks
from assay.testing import ScriptedModel

SUBJECTS = [
    path.stem.removeprefix("mmlu_")
    for path in sorted((FOLDER / "mmlu").glob("mmlu_*.yaml"))
    if "group:" not in path.read_text("utf-8")
]


def question(text: str, answer: int) -> dict[str, Any]:
    return {"question": text, "subject": "", "choices": ["one", "two", "three", "four"], "answer": answer}


def test_fifty_seven_subjects_are_in_four_groups() -> None:
    selection = select_tasks(["mmlu"], builtin_index())
    members = {name: len(selection.leaves(name)) for name in selection.groups}
    assert members == {
        "mmlu": 57,
        "mmlu_stem": 19,
        "mmlu_other": 13,
        "mmlu_social_sciences": 12,
        "mmlu_humanities": 13,
    }
    assert sorted(selection.tasks) == [f"mmlu_{subject}" for subject in SUBJECTS]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_differs_from_the_template_in_its_name_only(subject: str) -> None:
    text = (FOLDER / "mmlu" / f"mmlu_{subject}.yaml").read_text("utf-8")
    shown = subject.replace("_", " ")
    values = dict(re.findall(r"^(\w+): (.*)$", text, re.MULTILINE))
    assert values.pop("tag").endswith("_tasks")
    assert values == {
        "include": "_mmlu_yaml",
        "task": f"mmlu_{subject}",
        "task_alias": subject,
        "dataset_name": subject,
        "description": rf'"The following are multiple choice questions (with answers) about {shown}.\n\n"',
    }


@pytest.mark.usefixtures("workspace")
def test_solved_questions_come_from_dev_and_every_question_counts_the_same(tmp_path: Path) -> None:
    solved = [question(f"Is it {number}?", number % 4) for number in range(6)]
    rows = {"anatomy": 1, "virology": 3}
    put_configs(
        tmp_path / "hub",
        "cais/mmlu",
        {
            subject: {"test": [question(" What is it?", 1)] * count, "dev": solved}
            for subject, count in rows.items()
        },
    )

    def told(request: Request) -> LogProbability:
        assert isinstance(request, Likelihood)
        right = request.task == "mmlu_virology" and request.continuation == " B"
        return LogProbability(-1.0 if right else -2.0)

    model = ScriptedModel(told, window=1)
    group = tmp_path / "two.yaml"
    group.write_text(
        "group: two\ntask: [mmlu_anatomy, mmlu_virology]\naggregate_metric_list:\n"
        "  - metric: acc\n    weight_by_size: true\n"
    )
    run = assay.run(
        model=model, tasks=[str(group)], num_fewshot=2, data_root=str(tmp_path / "hub"), no_cache=True
    )
    assert run.results["mmlu_virology"]["acc,none"] == 1.0
    assert run.results["two"]["acc,none"] == 0.75
    assert model.asked[0].prompt.text == (
        "The following are multiple choice questions (with answers) about anatomy.\n\n"
        "Is it 0?\nA. one\nB. two\nC. three\nD. four\nAnswer: A\n\n"
        "Is it 1?\nA. one\nB. two\nC. three\nD. four\nAnswer: B\n\n"
        "What is it?\nA. one\nB. two\nC. three\nD. four\nAnswer:"
    )


@pytest.mark.parity
def test_the_groups_report_what_lm_eval_reports() -> None:
    assert replayed_group("mmlu").first is None
