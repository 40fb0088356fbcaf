"""HumanEval and MBPP: programs are run in a sandbox, and only where somebody allowed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builtin_tasks.fake_hub import put_configs
from tests.working_sandbox import working_sandbox

import assay
from assay.core.records.requests import Request
from assay.testing import ScriptedModel

HUMANEVAL = [
    {
        "task_id": f"own/{at}",
        "prompt": f'def {name}(a, b):\n    """{what} two numbers."""\n',
        "canonical_solution": f"    return a {sign} b\n",
        "test": f"def check(candidate):\n    assert candidate(7, 2) == {result}\n",
        "entry_point": name,
    }
    for at, (name, what, sign, result) in enumerate(
        [("add", "Add", "+", 9), ("subtract", "Subtract", "-", 5)]
    )
]
MBPP = [
    {
        "task_id": 11,
        "text": "Write a function to double a number.",
        "code": "def double(n):\n  return 2 * n",
        "test_list": ["assert double(1) == 2", "assert double(0) == 0", "assert double(-3) == -6"],
    }
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    put_configs(root, "openai/openai_humaneval", {"openai_humaneval": {"test": HUMANEVAL}})
    put_configs(root, "google-research-datasets/mbpp", {"full": {"test": MBPP}})
    return root


def run(answers: Any, task: str, hub: Path, tmp_path: Path) -> tuple[dict[str, Any], list[Request]]:
    model = ScriptedModel(answers, window=1)
    done = assay.run(
        model=model,
        tasks=[task],
        data_root=str(hub),
        output_path=str(tmp_path / "runs"),
        confirm_run_unsafe_code=True,
        no_cache=True,
        **working_sandbox(),
    )
    return done.results[task], model.asked


@pytest.mark.parametrize("task", ["humaneval", "mbpp"])
def test_nothing_is_asked_where_nobody_allowed_to_run_programs(task: str, hub: Path, workspace: Path) -> None:
    model = ScriptedModel(lambda request: "")
    with pytest.raises(assay.AssayError, match="code written by the model"):
        assay.run(model=model, tasks=[task], data_root=str(hub))
    assert not model.asked


def test_a_completion_passes_when_the_tests_do(hub: Path, tmp_path: Path) -> None:
    results, asked = run(lambda request: "    return a + b\n", "humaneval", hub, tmp_path)
    assert results["pass@1,create_test"] == 0.5
    assert not any(key.startswith("pass_at_k") for key in results), "the function names its scores itself"
    assert asked[0].prompt.text == HUMANEVAL[0]["prompt"]


def test_one_right_program_among_sixty_four_is_found_at_64(hub: Path, tmp_path: Path) -> None:
    results, asked = run(
        lambda request: f"    return a {'+' if request.repeat == 9 else '*'} b\n",
        "humaneval_64",
        hub,
        tmp_path,
    )
    assert len(asked) == 128
    assert results["pass@64,create_test"] == 0.5
    assert results["pass@2,create_test"] == pytest.approx(0.5 * 2 / 64)


def test_a_chat_model_goes_on_with_the_function_it_is_given(hub: Path, tmp_path: Path) -> None:
    results, asked = run(
        lambda request: "    return a - b\n```\nThis subtracts.", "humaneval_instruct", hub, tmp_path
    )
    assert results["pass@1,create_test"] == 0.5
    assert "Here is the completed function:\n```python\ndef add(a, b):" in asked[0].prompt.text


def test_mbpp_shows_three_solved_problems_and_the_tests(hub: Path, tmp_path: Path) -> None:
    results, asked = run(lambda request: MBPP[0]["code"], "mbpp", hub, tmp_path)
    assert results["pass_at_1,none"] == 1.0
    text = asked[0].prompt.text
    assert text.count("[DONE]") == 3
    assert "return (res) \n[DONE]\n\nYou are an expert Python programmer" in text
    assert text.endswith(
        "here is your task: Write a function to double a number. Your code should pass these tests:\n\n"
        "assert double(1) == 2\nassert double(0) == 0\nassert double(-3) == -6\n[BEGIN]\n"
    )
