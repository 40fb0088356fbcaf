"""Task code that draws from the global random generators draws what it draws in lm_eval 0.4.13.

The expected prompts were recorded with `lm_eval.simple_evaluate`, with an empty cache of the `datasets` library.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, write_task

import assay
from assay.checks.checker import check_tasks
from assay.cli.app import run_command_line
from assay.core.options.run_spec import RunSpec
from assay.core.progress import TaskProgress
from assay.engine.planning.plan import make_plan, plan_task_in_worker
from assay.engine.planning.records import Plan
from assay.engine.running.document_reader import read_chunks
from assay.sandboxes.program_runner import ProgramRunner
from assay.tasks.files.index import TaskIndex
from assay.testing import ScriptedModel

HELPERS = """
import random

def shuffle(rows):
    def change(row):
        row["mixed"] = list(row["choices"])
        random.shuffle(row["mixed"])
        return row
    return rows.map(change)

def text(row):
    return f"{row['q']} {random.random()}"

def fail(row):
    raise ValueError(f"drew {random.random()}")
"""

SEEDING = """
import random

random.seed(42)

def text(row):
    return f"{row['q']} -"
"""

AFTER_SEEDING = {"shuffled": ["edcab", "cbade", "bdace", "eabcd", "edacb"]}
ALONE = {
    "shuffled": ["bedca", "bdeac", "baedc", "eabdc", "acbde"],
    "texts": ["0.8293608616337174", "0.6834983854837421", "0.8378652312255158"],
}
SINGLE = {"single": ["cbaed", "acbde", "baecd", "cadbe", "bedca"]}
"""The examples come from the evaluated split, whose processed rows lm-eval finds in the cache of `datasets`."""

IN_GROUPS = {
    "texts": ["0.35715168259026286", "0.837661174368979", "0.25093266482213705"],
    "shuffled": ["cadbe", "debca", "eabdc", "acbde", "cbdea"],
    "others": ["ebdca", "bedca", "dabce", "cabde"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "seeding.py").write_text(SEEDING)
    rows = {
        letter: [{"q": f"{letter}{n}", "choices": list("abcde")} for n in range(count)]
        for letter, count in (("q", 5), ("t", 4), ("r", 4))
    }
    for letter, listed in rows.items():
        (tmp_path / f"{letter}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in listed))
    mixed = {"process_docs": Function("helpers.shuffle"), "doc_to_text": "{{q}} {{mixed | join}}"}
    common = {"doc_to_target": "a", "training_split": "train"}
    for name, test, train, keys in (
        ("shuffled", "q", "t", mixed),
        ("others", "r", "r", mixed),
        ("texts", "q", "t", {"doc_to_text": Function("helpers.text")}),
        ("seeding", "q", "t", {"doc_to_text": Function("seeding.text")}),
        ("failing", "q", "t", {**mixed, "doc_to_text": Function("helpers.fail")}),
        ("mixed_texts", "q", "t", {**mixed, "doc_to_text": Function("helpers.text")}),
    ):
        files = {"data_files": {"test": f"{test}.jsonl", "train": f"{train}.jsonl"}}
        config: dict[str, Any] = {**common, **keys, "dataset_kwargs": files}
        write_task(tmp_path, name, **config)
    single: dict[str, Any] = {
        **common,
        **mixed,
        "training_split": None,
        "dataset_kwargs": {"data_files": {"test": "q.jsonl"}},
    }
    write_task(tmp_path, "single", **single)
    (tmp_path / "inner.yaml").write_text("group: inner\ntask: [shuffled, others]\n")
    (tmp_path / "outer.yaml").write_text("group: outer\ntask: [texts, inner]\n")
    return tmp_path


def make_spec(folder: Path, *tasks: str) -> RunSpec:
    return RunSpec(tasks=list(tasks), include_path=[str(folder)], output_path=str(folder / "out"))


def read_prompts(plan: Plan) -> dict[str, list[str]]:
    """Return the second word of each prompt, as a run renders it."""
    return {
        name: [
            document.requests[0].prompt.text.split()[1]
            for chunk in read_chunks(
                plan, planned, frozenset(), TaskProgress(name, planned.documents), lambda chunk: 256, None
            )
            for document in chunk
        ]
        for name, planned in plan.tasks.items()
    }


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (("shuffled", "texts"), ALONE),
        (("single",), SINGLE),
        (("outer",), IN_GROUPS),
        (("seeding", "shuffled"), AFTER_SEEDING),
        (("shuffled", "seeding"), {"shuffled": ALONE["shuffled"]}),
    ],
    ids=["list", "one split", "groups", "a helper that seeds", "a helper that seeds later"],
)
def test_prompts_are_those_of_lm_eval(
    folder: Path, tasks: tuple[str, ...], expected: dict[str, list[str]]
) -> None:
    plan = asyncio.run(make_plan(make_spec(folder, *tasks), model=make_model()))
    found = read_prompts(plan)
    assert {name: found[name][: len(prompts)] for name, prompts in expected.items()} == expected
    assert read_prompts(plan) == found


def test_a_worker_loads_the_same_documents(folder: Path) -> None:
    spec = make_spec(folder, "outer")
    plan = asyncio.run(make_plan(spec, model=make_model()))
    again = plan_task_in_worker(spec, "others", plan.model, ProgramRunner(spec.sandbox, spec.sandbox_args))
    assert [row["mixed"] for row in again.task.rows] == [
        row["mixed"] for row in plan.tasks["others"].task.rows
    ]


def test_a_worker_knows_the_seeds_of_helpers_before(folder: Path) -> None:
    spec = make_spec(folder, "seeding", "shuffled")
    plan = asyncio.run(make_plan(spec, model=make_model()))
    again = plan_task_in_worker(spec, "shuffled", plan.model, ProgramRunner(spec.sandbox, spec.sandbox_args))
    assert ["".join(row["mixed"]) for row in again.task.rows] == AFTER_SEEDING["shuffled"]


def test_the_model_receives_the_generators_after_loading(folder: Path) -> None:
    received = []

    class Model(ScriptedModel):
        def receive_random_states(self, states: tuple[Any, Any]) -> None:
            received.append(states)

    run = assay.run(make_spec(folder, "seeding"), model=Model(), no_cache=True)
    run.close()
    expected = random.Random(42)
    for _ in range(3):
        expected.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8)
    assert [states[0] for states in received] == [expected.getstate()]


def test_the_plan_tells_which_tasks_depend_on_the_generators(folder: Path) -> None:
    plan = asyncio.run(make_plan(make_spec(folder, "shuffled"), model=make_model()))
    assert any(
        "shuffled: the code of the task may draw from the global random" in note for note in plan.notes
    )


def test_show_renders_the_prompts_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = asyncio.run(make_plan(make_spec(folder, "texts", "mixed_texts"), model=make_model()))
    arguments = ["show", "texts,mixed_texts", "-n", "3", "--include_path", str(folder), "--json"]
    assert run_command_line(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    shown: dict[str, list[str]] = {}
    for row in rows:
        shown.setdefault(row["task"], []).append(row["requests"][0]["prompt"].split()[1])
    assert shown == {name: prompts[:3] for name, prompts in read_prompts(plan).items()}


def test_check_draws_as_a_run_of_the_task_alone(folder: Path) -> None:
    plan = asyncio.run(make_plan(make_spec(folder, "mixed_texts"), model=make_model()))
    (subject,) = check_tasks(["failing"], TaskIndex.build([folder])).subjects
    (first,) = [one.what for one in subject.findings if one.what.startswith("document 0:")]
    assert f"drew {read_prompts(plan)['mixed_texts'][0]}" in first
