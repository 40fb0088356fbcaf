"""`assay.run`, `assay.plan` and `assay.open_run` as used by scripts and notebooks."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, make_model, write_choices, write_task

import assay
from assay.core.errors import AssayError, InvalidOption, UnknownName, UserError
from assay.engine.planning.run_keywords import RunKeywords


def test_run_has_results_table_and_documents(workspace: Path) -> None:
    run = assay.run(model=make_model(), tasks=[str(write_task(workspace))])
    assert run.results == {"sums": {"exact_match,none": 1.0, "exact_match_stderr,none": 0.0}}
    assert "exact_match" in run.table()
    rows = list(run.samples("sums"))
    assert [row["doc"] for row in rows] == ROWS
    assert [row["exact_match"] for row in rows] == [1.0] * 6
    assert (run.model, run.finished, run.id) == ("scripted", True, run.folder.name)
    assert repr(run) == f"Run(scripted: sums exact_match 1.0000, {str(run.folder)!r})"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc/self/fd")
def test_results_need_no_open_files_and_a_dropped_run_has_none(workspace: Path) -> None:
    def list_open_files() -> list[Path]:
        targets = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [target for target in targets if target.is_relative_to(run_folder)]

    gc.disable()
    try:
        run = assay.run(model=make_model(), tasks=[str(write_task(workspace))], output_path="out")
        run_folder = run.folder.resolve()
        assert run.results
        assert list_open_files() == []
        assert list(run.samples("sums"))
        assert list_open_files() != []
        del run
        assert list_open_files() == []
    finally:
        gc.enable()


def test_the_embedded_model_is_the_default(workspace: Path) -> None:
    run = assay.run(tasks="quickstart_copy", limit=2)
    assert run.model == "embedded"
    assert run.outcomes("quickstart_copy") == {"scored": 2}


def test_quickstart_tasks_run(workspace: Path) -> None:
    run = assay.run(limit=2)
    assert set(run.results) == {
        "quickstart",
        *(f"quickstart_{name}" for name in "addition copy facts shapes stories vote".split()),
    }
    assert all(run.outcomes(task) == {"scored": 2} for task in run.tasks)


def test_plan_counts_without_requests(workspace: Path) -> None:
    model = make_model()
    plan = assay.plan(model=model, tasks=[str(write_task(workspace))], limit=4)
    assert plan.documents == 4
    assert (model.asked, model.opened) == ([], 0)
    assert not plan.folder.exists()


def test_keyword_options_override_the_spec(workspace: Path) -> None:
    task = str(write_task(workspace))
    spec = assay.RunSpec(tasks=[task], limit=2)
    assert assay.plan(spec, model=make_model()).documents == 2
    assert assay.plan(spec, model=make_model(), limit=3).documents == 3
    assert assay.plan(spec, model=make_model(), limit="0.5").documents == 3


def test_model_can_be_an_object(workspace: Path) -> None:
    model = make_model(lambda request: "never right", name="mine")
    run = assay.run(model=model, tasks=[str(write_task(workspace))], output_path="out")
    assert run.model == "mine"
    assert len(model.asked) == 6
    assert run.files[0].parent == Path("out/mine")
    assert assay.run(assay.RunSpec(tasks=[str(workspace / "sums.yaml")]), model=model).model == "mine"


def test_on_plan_is_called_before_the_first_request(workspace: Path) -> None:
    model, told = make_model(), []

    def on_plan(plan: assay.Plan) -> None:
        told.append((plan.documents, len(model.asked), model.opened))

    assay.run(model=model, tasks=[str(write_task(workspace))], on_plan=on_plan)
    assert told == [(6, 0, 0)]


def test_progress_is_shown_when_asked_for(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = str(write_task(workspace))
    assay.run(model=make_model(), tasks=[task])
    assert capsys.readouterr() == ("", "")
    assay.run(model=make_model(), tasks=[task], progress=True)
    assert capsys.readouterr() == ("", ""), "a finished run has no progress to show"
    assay.run(model=make_model(), tasks=[task], limit=5, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "5/5 documents" in err


# --- notebooks -----------------------------------------------------------------------------------------


def test_run_inside_an_event_loop(workspace: Path) -> None:
    task = str(write_task(workspace))

    async def cell() -> tuple[int, assay.Run]:
        return assay.plan(model=make_model(), tasks=[task]).documents, assay.run(
            model=make_model(), tasks=[task]
        )

    documents, run = asyncio.run(cell())
    assert documents == 6
    assert run.results["sums"]["exact_match,none"] == 1.0


def test_errors_propagate_through_an_event_loop(workspace: Path) -> None:
    async def cell() -> Any:
        return assay.run(tasks=["nowhere"])

    with pytest.raises(UnknownName, match="no task is called `nowhere`"):
        asyncio.run(cell())


def test_concurrent_runs_in_one_process_are_independent(workspace: Path) -> None:
    tasks = [str(write_task(workspace)), str(write_choices(workspace))]

    async def both() -> list[assay.Run]:
        runs = (asyncio.to_thread(assay.run, model=assay_model(), tasks=[task]) for task in tasks)
        return list(await asyncio.gather(*runs))

    def assay_model() -> Any:
        from assay.testing import ScriptedModel

        return ScriptedModel()

    assert [run.finished for run in asyncio.run(both())] == [True, True]


def test_concurrent_executions_of_one_run_are_rejected(workspace: Path) -> None:
    task = str(write_task(workspace))

    def again(request: Any) -> str:
        with pytest.raises(AssayError, match="is locked by process"):
            assay.run(model=make_model(), tasks=[task])
        return "1"

    run = assay.run(model=make_model(again), tasks=[task])
    assert run.outcomes("sums") == {"scored": 6}


# --- open_run ------------------------------------------------------------------------------------------


def test_a_run_is_opened_from_its_folder_or_its_journal(workspace: Path) -> None:
    finished = assay.run(model=make_model(), tasks=[str(write_task(workspace))])
    for path in (finished.folder, str(finished.folder), finished.folder / "journal.sqlite"):
        opened = assay.open_run(path)
        assert opened.results == finished.results
        assert opened.estimates == finished.estimates
        assert opened.table() == finished.table()
        opened.close()


def test_folder_without_a_run_is_an_error(workspace: Path) -> None:
    with pytest.raises(UserError, match="there is no run in"):
        assay.open_run(workspace)


def test_run_can_be_opened_while_in_progress(workspace: Path) -> None:
    looked: list[tuple[bool, int]] = []

    def look(request: Any) -> str:
        (folder,) = Path("assay-runs").iterdir()
        run = assay.open_run(folder)
        looked.append((run.finished, run.journal.count_rows("requests")))
        run.close()
        return "1"

    assay.run(model=make_model(look, window=1), tasks=[str(write_task(workspace))])
    assert [finished for finished, _ in looked] == [False] * 6
    assert all(requests in (0, 6) for _, requests in looked), "a commit is seen whole or not at all"


# --- mistakes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "what"),
    [
        ({"taks": ["x"]}, UnknownName, "no option is called `taks`"),
        ({"limit": 0}, InvalidOption, "neither a number nor a fraction"),
        ({"limit": "many"}, InvalidOption, "`many` is not a number"),
        ({"tasks": []}, InvalidOption, "no task selected"),
        ({"seed": "x"}, InvalidOption, "not a seed"),
    ],
)
def test_invalid_option_is_an_error_with_a_hint(
    workspace: Path, options: dict[str, Any], kind: type[AssayError], what: str
) -> None:
    for call in (assay.run, assay.plan):
        with pytest.raises(kind, match=what):
            call(**options)


def test_sigterm_raises_run_interrupted(workspace: Path) -> None:
    """SIGTERM in a script: a `RunInterrupted` error, not a bare cancellation."""
    script = """
import os, signal, assay
from assay.core.errors import RunInterrupted
from assay.testing import ScriptedModel

def stop(request):
    if request.document == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    return "1"

try:
    assay.run(model=ScriptedModel(stop, window=1), tasks=["sums.yaml"])
except RunInterrupted as error:
    print(error.what)
"""
    write_task(workspace)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "stopped by a signal; all responses are saved\n"


def test_signal_handler_of_the_caller_is_restored(workspace: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    assay.run(model=make_model(), tasks=[str(write_task(workspace))])
    assert signal.getsignal(signal.SIGINT) is before


def test_the_keywords_are_the_options_of_a_run() -> None:
    """The generated types, the signature that notebooks complete, and the docstring have every option."""
    names = [item.name for item in fields(assay.RunSpec)]
    assert list(RunKeywords.__annotations__) == names
    for function in (assay.run, assay.plan):
        parameters = inspect.signature(function).parameters
        assert [name for name in parameters if name in names] == names
        assert parameters["limit"].default is None
        assert all(f"{name}: " in (function.__doc__ or "") for name in names)
        assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
