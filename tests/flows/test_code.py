"""Runs of tasks that execute generated code: rejected, allowed, scored and reported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.making import Function, make_model, write_task
from tests.working_sandbox import working_sandbox

import assay
from assay.core.errors import InvalidOption, UnsupportedRequest
from assay.core.records.programs import Execution, IsolationReport, Program
from assay.core.records.requests import Generate
from assay.sandboxes import SANDBOXES

ROWS = [
    {"question": "double", "tests": "assert double(4) == 8"},
    {"question": "half", "tests": "assert half(4) == 2"},
    {"question": "never", "tests": "assert never() is None"},
]
RIGHT = {
    "double": "def double(x):\n    return 2 * x",
    "half": "def half(x):\n    return x // 2",
    "never": "def never():\n    return None",
}
SMOKE_TEST = (
    'code.compute(references=["assert add(2, 3) == 5"], predictions=[["def add(a, b): return a * b"]], k=[1])'
)
HELPERS = f"""
import evaluate

code = evaluate.load("code_eval")
{SMOKE_TEST}

def pass_at_k(references, predictions, k):
    return code.compute(references=references, predictions=predictions, k=k)[0]

def keep(resps, docs):
    return resps
"""


def write_code_task(folder: Path, **keys: Any) -> Path:
    return write_task(
        folder,
        "code",
        ROWS,
        helpers=HELPERS,
        **{
            "doc_to_text": "{{question}}",
            "doc_to_target": "{{tests}}",
            "unsafe_code": True,
            "metric_list": [{"metric": Function("utils.pass_at_k"), "aggregation": "mean", "k": [1]}],
            "filter_list": [
                {"name": "programs", "filter": [{"function": "custom", "filter_fn": Function("utils.keep")}]}
            ],
            **keys,
        },
    )


def run(path: Path, answers: Any, **options: Any) -> assay.Run:
    settings = {"confirm_run_unsafe_code": True, "no_cache": True, **working_sandbox(), **options}
    return assay.run(
        model=make_model(answers), tasks=[str(path)], output_path=mkdtemp(dir=path.parent), **settings
    )


def test_unsafe_code_is_an_error_in_the_plan_unless_allowed(tmp_path: Path) -> None:
    path = write_code_task(tmp_path)
    with pytest.raises(UnsupportedRequest, match="executes code written by the model"):
        run(path, lambda request: "", confirm_run_unsafe_code=False)


def test_an_unavailable_sandbox_is_an_error_in_the_plan(tmp_path: Path) -> None:
    path = write_code_task(tmp_path)
    with pytest.raises(InvalidOption, match="invalid arguments for the sandbox"):
        assay.plan(
            tasks=[str(path)], confirm_run_unsafe_code=True, sandbox="limits", sandbox_args={"image": "x"}
        )
    with pytest.raises(InvalidOption, match="the sandbox `docker` does not work here"):
        assay.plan(
            tasks=[str(path)],
            confirm_run_unsafe_code=True,
            sandbox="docker",
            sandbox_args={"tool": "no-such-container-tool"},
        )


def test_correct_programs_pass_and_wrong_ones_fail(tmp_path: Path) -> None:
    path = write_code_task(tmp_path)
    right = run(path, lambda request: RIGHT[request.prompt.text])
    assert right.results["code"]["pass@1,programs"] == 1.0
    assert right.facts["sandbox"]["isolated"]
    assert right.facts["sandbox"]["name"] == working_sandbox()["sandbox"]
    manifest = json.loads((right.folder / "manifest.json").read_text())
    assert manifest["sandbox"] == right.facts["sandbox"]
    assert manifest["sandbox"]["tool"]
    wrong = run(path, lambda request: "def double(x): return x\ndef half(x): raise ValueError\n")
    assert wrong.results["code"]["pass@1,programs"] == 0.0


def test_pass_at_k_counts_repeats(tmp_path: Path) -> None:
    """Two of four candidates pass for the first problem, one for the second, none for the third."""
    metric = {"metric": Function("utils.pass_at_k"), "aggregation": "mean", "k": [1, 2, 4]}
    path = write_code_task(tmp_path, repeats=4, metric_list=[metric])

    def answers(request: Generate) -> str:
        right = {"double": 2, "half": 1, "never": 0}[request.prompt.text]
        return RIGHT[request.prompt.text] if request.repeat < right else "raise ValueError"

    found = run(path, answers).results["code"]
    assert found["pass@1,programs"] == pytest.approx((2 / 4 + 1 / 4 + 0) / 3)
    assert found["pass@2,programs"] == pytest.approx((1 - 1 / 6 + 1 - 3 / 6 + 0) / 3)
    assert found["pass@4,programs"] == pytest.approx(2 / 3)


@pytest.mark.filterwarnings("ignore:no document of `code` has a score:UserWarning")
def test_a_task_without_unsafe_code_cannot_execute_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ALLOW_CODE_EVAL", raising=False)
    path = write_code_task(tmp_path, unsafe_code=False)
    done = run(path, lambda request: RIGHT[request.prompt.text], confirm_run_unsafe_code=False)
    reasons = [
        why for _, why in done.journal.query("SELECT outcome, why FROM outcomes WHERE outcome = 'unscored'")
    ]
    assert len(reasons) == 3
    assert all("which this run does not allow" in why for why in reasons)


def test_a_program_that_never_ends_fails_only_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = HELPERS.replace("k=k)", "k=k, timeout=0.3)")
    path = write_code_task(tmp_path)
    (tmp_path / "utils.py").write_text(short)

    def answers(request: Generate) -> str:
        return "while True: pass" if request.prompt.text == "half" else RIGHT[request.prompt.text]

    assert run(path, answers).results["code"]["pass@1,programs"] == pytest.approx(2 / 3)


class BarrierSandbox:
    """A sandbox in which the first two programs wait for each other."""

    name = "meeting"

    def __init__(self) -> None:
        self._here = 0
        self._met = asyncio.Event()

    async def inspect(self) -> IsolationReport:
        return IsolationReport(sandbox=self.name)

    async def execute(self, program: Program) -> Execution:
        self._here += 1
        if self._here >= 2:
            self._met.set()
        word = json.loads(program.stdin)["word"]
        try:
            await asyncio.wait_for(self._met.wait(), 5)
        except TimeoutError:
            return Execution(exit_reason="exited", exit_code=0, stdout=f"{word} failed: alone")
        return Execution(exit_reason="exited", exit_code=0, stdout=f"{word} passed")


def test_programs_of_several_documents_run_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.sandboxes.program_runner.count_usable_cores", lambda: 2)
    SANDBOXES.add("meeting", BarrierSandbox, replace=True)
    path = write_code_task(tmp_path)
    (tmp_path / "utils.py").write_text(HELPERS.replace(SMOKE_TEST, ""))
    done = run(path, lambda request: RIGHT[request.prompt.text], sandbox="meeting")
    assert done.results["code"]["pass@1,programs"] == 1.0


MAIN_THREAD_HELPERS = """
import signal, threading

def judge(doc, results):
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)  # Python allows this only in the main thread
    signal.signal(signal.SIGALRM, before)
    return {"exact_match": 1.0}
"""


def test_task_code_stays_in_the_main_thread_while_other_tasks_wait_for_programs(workspace: Path) -> None:
    """Math-Verify and `signal.alarm` work only there, whatever else the run does."""
    code = write_code_task(workspace / "code")
    other = write_task(
        workspace / "other",
        "alarmed",
        helpers=MAIN_THREAD_HELPERS,
        process_results=Function("utils.judge"),
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )

    def answer(request: Generate) -> str:
        return RIGHT.get(request.prompt.text, "2")

    together = assay.run(
        model=make_model(answer), tasks=[str(code), str(other)], confirm_run_unsafe_code=True, no_cache=True
    )
    assert together.outcomes("alarmed") == {"scored": 6}
    assert together.results["alarmed"]["exact_match,none"] == 1.0
    alone = assay.run(
        model=make_model(answer), tasks=[str(code)], confirm_run_unsafe_code=True, no_cache=True
    )
    assert together.results["code"] == alone.results["code"]
