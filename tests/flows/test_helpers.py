"""Helper code that misbehaves on one document fails only that document, not the run or other documents.

This does not cover what ends the process: `os._exit`, a crash in C, or a signal that helper code sends itself. After those, the
same command resumes the run from the journal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.flows.running import CommandRunner, read_tables
from tests.making import Function, make_model, write_task

import assay

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
BAD = 3
HELPERS = f"""
import asyncio, io, os, random, re, sys, threading, time

class CustomError(BaseException):
    pass

def recurse(n):
    return recurse(n + 1)

def misbehave(doc, results):
{{body}}

def text(doc):
    if {{where}} == "text" and doc["answer"] == "{BAD + 1}":
        misbehave(doc, [])
    return "Question: " + doc["question"]

def target(doc):
    if {{where}} == "target" and doc["answer"] == "{BAD + 1}":
        misbehave(doc, [])
    return doc["answer"]

def process(doc, results):
    right, drawn = float(results[0] == doc["answer"]), random.random()
    if {{where}} == "process" and doc["answer"] == "{BAD + 1}":
        misbehave(doc, results)
    return {{{{"right": right, "drawn": drawn}}}}

def mean(values):
    if {{where}} == "mean":
        misbehave({{{{}}}}, [])
    return sum(values) / len(values)
"""


def write_helper_task(folder: Path, body: str, where: str) -> str:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    metrics: list[Any] = [
        {"metric": "right", "aggregation": Function("utils.mean"), "higher_is_better": True},
        {"metric": "drawn", "aggregation": "mean", "higher_is_better": True},
    ]
    path = write_task(
        folder / "tasks",
        "fragile",
        ROWS,
        helpers=HELPERS.format(body=indented, where=repr(where)),
        doc_to_text=Function("utils.text"),
        doc_to_target=Function("utils.target"),
        process_results=Function("utils.process"),
        metric_list=metrics,
    )
    return str(path)


def run_with_helper(folder: Path, body: str, where: str, **options: Any) -> tuple[Any, dict[str, list[Any]]]:
    """Run a task with this misbehaviour together with a good task; return the run and its journal tables."""
    good = write_task(folder / "good", "good", ROWS)
    fragile = write_helper_task(folder, body, where)
    run = assay.run(
        model=make_model(), tasks=[fragile, str(good)], output_path="out", no_cache=True, **options
    )
    return run, dict(read_tables(folder / "out" / run.id))


def exclude_bad_document(rows: list[Any]) -> list[Any]:
    """Return the rows of all other documents and of the other task."""
    return [row for row in rows if (row[0], row[1]) != ("fragile", BAD)]


_TABLES: dict[str, list[Any]] = {}


@pytest.fixture
def undisturbed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The journal tables of a run without misbehaviour, created once."""
    if not _TABLES:
        folder = tmp_path_factory.mktemp("undisturbed")
        monkeypatch.chdir(folder)
        _TABLES.update(run_with_helper(folder, "pass", "")[1])
    return _TABLES


ENDS = {
    "raises": ("raise ValueError('no')", "ValueError: no"),
    "exits": ("sys.exit(3)", "exits the program"),
    "exits without a word": ("raise SystemExit", "exits the program"),
    "cancels": ("raise asyncio.CancelledError", "CancelledError"),
    "raises what is no exception": ("raise CustomError('odd')", "CustomError"),
    "recurses": ("recurse(0)", "RecursionError"),
    "takes all memory": ("raise MemoryError", "MemoryError"),
    "loops": ("while True: pass", "helper_timeout"),
    "sleeps": ("time.sleep(600)", "helper_timeout"),
    "swallows": (
        "while True:\n    try:\n        time.sleep(0.01)\n    except Exception:\n        pass",
        "helper_timeout",
    ),
}


@pytest.mark.parametrize("case", sorted(ENDS))
def test_an_error_in_helper_code_does_not_stop_the_run(
    workspace: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(workspace)
    body, word = ENDS[case]
    _, found = run_with_helper(workspace, body, "process", helper_timeout=1.0)
    (ending,) = [row for row in found["outcomes"] if (row[0], row[1]) == ("fragile", BAD)]
    assert ending[2] == "unscored"
    assert word in ending[3]
    for table in ("responses", "outcomes", "verdicts"):
        assert exclude_bad_document(found[table]) == exclude_bad_document(undisturbed[table])


@pytest.mark.parametrize("where", ["text", "target", "mean"])
@pytest.mark.parametrize("case", ["raises", "exits", "cancels", "loops"])
def test_other_documents_are_scored_wherever_helper_code_fails(
    workspace: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, case: str, where: str
) -> None:
    monkeypatch.chdir(workspace)
    run, found = run_with_helper(workspace, ENDS[case][0], where, helper_timeout=0.5)
    assert exclude_bad_document(found["verdicts"]) == exclude_bad_document(undisturbed["verdicts"])
    endings = {row[1]: row[2] for row in found["outcomes"] if row[0] == "fragile"}
    assert endings == {n: "failed" if (n, where) == (BAD, "text") else "scored" for n in range(8)}
    if where == "mean":
        assert [(one.metric, one.value is None) for one in run.estimates if one.task == "fragile"] == [
            ("right", True),
            ("drawn", False),
        ]


SCRIBBLES = {
    "empties its document": "doc.clear()",
    "writes into its document": "doc['answer'] = doc['question'] = ['x']",
    "empties the answers": "results.clear()",
    "draws": "random.seed(1); [random.random() for _ in range(1000)]",
    "moves elsewhere": "os.chdir('/')",
    "prints": "print('x' * 3_000_000); print('y' * 3_000_000, file=sys.stderr)",
    "leaves threads": "[threading.Thread(target=time.sleep, args=(600,), daemon=True).start() for _ in range(20)]",
    "closes the output": "sys.stdout = io.StringIO(); sys.stdout.close()",
    "swaps the output": "sys.stdout = sys.stderr = io.StringIO()",
}


@pytest.mark.parametrize("case", sorted(SCRIBBLES))
def test_side_effects_of_helper_code_do_not_affect_other_documents(
    workspace: Path,
    undisturbed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    case: str,
) -> None:
    monkeypatch.chdir(workspace)
    streams = sys.stdout, sys.stderr
    _, found = run_with_helper(workspace, SCRIBBLES[case], "process")
    assert (sys.stdout, sys.stderr) == streams
    assert Path.cwd() == workspace
    assert capfd.readouterr().out == "", "results alone go to standard output"
    for table in ("documents", "responses", "outcomes", "verdicts"):
        ours, theirs = found[table], undisturbed[table]
        assert exclude_bad_document(ours) == exclude_bad_document(theirs)
        assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    assert len({(row[0], row[1]) for row in found["outcomes"]}) == 16


def test_output_of_helper_code_is_not_mixed_into_the_results(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    body = "print('noise ' * 300_000); print('more noise', file=sys.stderr)"
    command = runner.build_command(
        write_helper_task(tmp_path, body, "process"), "--no_cache", "--json", delay_ms=0
    )
    finished = runner.finish(command)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["n-samples"]["fragile"]["effective"] == len(ROWS)
    assert finished.stderr.count("noise") == 300_001


LEAVES_A_THREAD = "threading.Thread(target=time.sleep, args=(300,)).start()"


def test_a_thread_of_helper_code_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    task = write_helper_task(tmp_path, LEAVES_A_THREAD, "process")
    finished = runner.finish(runner.build_command(task, "--no_cache", "--output_path", "out", delay_ms=0))
    assert finished.returncode == 0, finished.stderr
    assert "drawn" in finished.stdout


def test_a_run_that_helper_code_killed_resumes_when_the_command_is_repeated(
    tmp_path: Path,
) -> None:
    """Nothing can catch `os._exit`, but the answers are stored."""
    runner = CommandRunner(tmp_path)
    task = write_helper_task(
        tmp_path, "if not os.path.exists('once'):\n    open('once', 'w').close()\n    os._exit(7)", "process"
    )
    command = runner.build_command(task, "--no_cache", "--output_path", "out", delay_ms=0)
    assert runner.finish(command).returncode == 7
    asked = runner.read_request_ids()
    assert runner.finish(command).returncode == 0
    assert runner.count_requests().total() <= len(ROWS) + 4, "a window at most was on its way"
    assert len(asked) > 0
    assert len(read_tables(runner.find_run_folder("out"))["verdicts"]) == 2 * len(ROWS)


@pytest.mark.parametrize("name", ["text", "import"])
def test_helper_code_that_exits_before_the_first_request_is_an_error_with_its_location(
    tmp_path: Path, name: str
) -> None:
    runner = CommandRunner(tmp_path)
    task = write_helper_task(tmp_path, "sys.exit(0)", "text")
    helpers = tmp_path / "tasks" / "utils.py"
    text = helpers.read_text()
    helpers.write_text(
        f"{text}\nimport sys\nsys.exit(0)\n" if name == "import" else text.replace(f'"{BAD + 1}"', '"1"')
    )
    ended = runner.finish(runner.build_command(task, "--no_cache"))
    assert ended.returncode == 2, ended.stderr
    assert "exits the program" in ended.stderr
    assert "utils.py" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert runner.read_request_ids() == []
