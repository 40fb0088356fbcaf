from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task

from assay.core.errors import InvalidOption
from assay_compat.commands.script_api import TaskManager, simple_evaluate

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]


class Adder:
    """A model as people write one for lm-eval."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def generate_until(self, requests: list[Any]) -> list[str]:
        self.asked += requests
        return [str(int(one.args[0].split()[-4]) + 1) for one in requests]

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        return [(-float(len(one.args[1])), False) for one in requests]


def test_the_results_have_the_keys_scripts_read(workspace: Path) -> None:
    results = simple_evaluate(
        model="embedded",
        model_args="",
        tasks=["quickstart_addition"],
        limit=3,
        batch_size=1,
        verbosity="INFO",
    )
    assert results["results"]["quickstart_addition"]["exact_match,get-sum"] == 1.0
    assert {
        "results",
        "configs",
        "versions",
        "n-shot",
        "higher_is_better",
        "n-samples",
        "config",
        "samples",
    } <= results.keys()
    samples = results["samples"]["quickstart_addition"]
    assert [sample["doc_id"] for sample in samples] == [0, 1, 2]
    assert "samples" not in simple_evaluate(
        "embedded", tasks="quickstart_addition", limit=3, log_samples=False
    )


def test_object_with_lm_eval_methods_is_a_model(workspace: Path) -> None:
    write_task(workspace / "tasks", "sums", ROWS)
    model = Adder()
    results = simple_evaluate(
        model, tasks=["sums"], task_manager=TaskManager(include_path=str(workspace / "tasks"))
    )
    assert results["results"]["sums"]["exact_match,none"] == 1.0
    assert [(one.request_type, one.doc_id, one.task_name) for one in model.asked] == [
        ("generate_until", number, "sums") for number in range(4)
    ]
    assert isinstance(model.asked[0].args[1], dict)


def test_two_objects_never_share_answers(workspace: Path) -> None:
    task = str(write_task(workspace, "sums", ROWS))
    models = [Adder(), Adder()]
    for model in models:
        simple_evaluate(model, tasks=[task])
    assert [len(model.asked) for model in models] == [4, 4]


def test_likelihood_requests_call_loglikelihood(workspace: Path) -> None:
    task = write_task(
        workspace, "picks", [{"q": "Which?", "gold": 1}], output_type="multiple_choice", doc_to_text="{{q}}",
        doc_to_choice=["long one", "b"], doc_to_target="gold", metric_list=[{"metric": "acc"}], generation_kwargs=None,
    )  # fmt: skip
    assert simple_evaluate(Adder(), tasks=[str(task)])["results"]["picks"]["acc,none"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"model": "embedded"}, "missing argument: tasks"),
        ({"model": "embedded", "tasks": [{"task": "x"}]}, "not dict"),
        ({"model": "embedded", "tasks": ["x"], "wrong": 1}, "unknown argument `wrong`"),
        ({"model": object(), "tasks": ["x"]}, "object is not a model"),
    ],
)
def test_invalid_arguments_are_reported(workspace: Path, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidOption, match=what):
        simple_evaluate(**arguments)


def test_tasks_are_listed_and_matched() -> None:
    manager = TaskManager()
    assert "quickstart_addition" in manager.all_tasks
    assert manager.match_tasks(["quickstart_add*"]) == ["quickstart_addition"]
