"""Signals, a second process, failed requests, a full disk: no answers are lost, and the run reports the problem."""

from __future__ import annotations

import resource
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.flows.running import (
    ASSAY,
    CommandRunner,
    compute_fingerprints,
    kill,
    read_committed_fingerprints,
    read_tables,
    wait_until,
)
from tests.flows.small_disks import CannotMount, run_on_small_disk
from tests.making import Function, write_task

from assay.cli.app import run_command_line
from assay.store.journal.journal import JOURNAL_FILE


@pytest.fixture
def runner(tmp_path: Path) -> CommandRunner:
    return CommandRunner(tmp_path)


# --- signals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_run_prints_how_to_resume_and_exits_130(
    runner: CommandRunner, number: signal.Signals
) -> None:
    options = [*runner.write_tasks(documents=12)[:2], "--no_cache"]
    assert runner.finish(runner.build_command(*options, "--output_path", "whole")).returncode == 0
    expected, total = read_tables(runner.find_run_folder("whole")), len(runner.read_request_ids())
    runner.log.unlink()

    command = runner.build_command(*options, "--output_path", "stopped out")
    process = runner.start(command)
    assert wait_until(lambda: len(runner.read_request_ids()) >= 6, process)
    out, err = kill(process, number)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert "interrupted; all responses are saved" in err
    assert "--output_path 'stopped out'" in err, "the command can be pasted as it is"
    asked = runner.read_request_ids()
    assert runner.log.read_text().splitlines()[-1] == "close", "the model was closed"
    kept = read_committed_fingerprints(runner.find_run_folder("stopped out"))
    assert len(compute_fingerprints(asked) - kept) <= 1, "at most the one in flight is lost"

    assert runner.finish(command).returncode == 0
    assert read_tables(runner.find_run_folder("stopped out")) == expected
    assert not compute_fingerprints(runner.read_request_ids(len(asked))) & kept
    assert len(runner.count_requests()) == total


def test_a_signal_before_the_first_request_exits_cleanly(runner: CommandRunner) -> None:
    command = runner.build_command(*runner.write_tasks(documents=5)[:1], delay_ms=2000)
    process = runner.start(command)
    assert wait_until(lambda: runner.log.exists(), process)
    _, err = kill(process, signal.SIGINT)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert runner.finish(runner.build_command(*runner.write_tasks(documents=5)[:1])).returncode == 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("run", "interrupted; all responses are saved. To continue:\n  assay run x"),
        ("check", "interrupted. To repeat:\n  assay check x"),
    ],
)
def test_only_commands_that_ask_tell_of_saved_responses(
    command: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.cli.app.app.main", interrupt)
    assert run_command_line([command, "x"]) == 130
    assert expected in capsys.readouterr().err


# --- concurrent processes ---------------------------------------------------------------------------------------


def test_a_second_process_on_the_same_run_fails_and_the_first_continues(runner: CommandRunner) -> None:
    hold = runner.folder / "hold"
    hold.touch()
    command = runner.build_command(*runner.write_tasks(documents=20)[:1], "--output_path", "out", hold=hold)
    first = runner.start(command)
    assert wait_until(lambda: bool(runner.read_request_ids()), first)
    second = runner.finish(command)
    hold.unlink()
    assert second.returncode == 2
    assert second.stdout == ""
    assert f"process {first.pid} on {socket.gethostname()}" in second.stderr
    assert "hint:" in second.stderr
    out, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    assert "exact_match" in out
    assert set(runner.count_requests().values()) == {1}


def test_two_runs_share_one_cache_at_the_same_time(runner: CommandRunner) -> None:
    tasks = runner.write_tasks(documents=40)[:2]
    commands = [
        runner.build_command(*tasks, "--output_path", name, *extra)
        for name, extra in (("a", []), ("b", ["--limit", "30"]))
    ]
    both = [runner.start(command) for command in commands]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    third = len(runner.read_request_ids())
    assert runner.finish(runner.build_command(*tasks, "--output_path", "c")).returncode == 0
    assert runner.read_request_ids(third) == [], "both have filled the cache"
    assert read_tables(runner.find_run_folder("a")) == read_tables(runner.find_run_folder("c"))


# --- failures ------------------------------------------------------------------------------------------


def test_failed_requests_are_counted_reported_and_retried(runner: CommandRunner) -> None:
    tasks = runner.write_tasks(documents=40)[:2]
    assert runner.finish(runner.build_command(*tasks, "--output_path", "whole", "--no_cache")).returncode == 0
    total = len(runner.read_request_ids())
    runner.log.unlink()

    runner.broken.touch()
    command = runner.build_command(*tasks, "--output_path", "out", "--no_cache", delay_ms=0)
    first = runner.finish(command)
    kept = read_committed_fingerprints(runner.find_run_folder("out"))
    failed = total - len(kept)
    assert 5 < failed < total / 2
    assert first.returncode == 1
    assert f"error: {failed} of {total} requests failed" in first.stderr
    assert "hint: repeat the command" in first.stderr
    assert f"failed: {failed} server error" in first.stderr
    assert "exact_match" in first.stdout, "the numbers there are, are shown"

    runner.broken.unlink()
    second = runner.finish(command)
    assert second.returncode == 0, second.stderr
    again = runner.read_request_ids(total)
    assert len(again) == failed
    assert not compute_fingerprints(again) & kept
    assert read_tables(runner.find_run_folder("out")) == read_tables(runner.find_run_folder("whole"))


# --- full disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("room_kb", [0, 160])
def test_a_full_disk_is_a_clear_error_and_the_run_can_resume(runner: CommandRunner, room_kb: int) -> None:
    """Simulate a full disk with a file size limit."""
    options = [*runner.write_tasks(documents=300)[:1], "--no_cache"]
    command = runner.build_command(*options, "--output_path", "out", delay_ms=0.5)

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_kb * 1024, room_kb * 1024))

    runner.log.symlink_to("/dev/null")
    full = runner.finish(command, preexec_fn=no_room)
    runner.log.unlink()
    assert full.returncode in (1, 2), (full.returncode, full.stderr)
    assert "Traceback" not in full.stderr
    assert "error: " in full.stderr
    assert "cannot" in full.stderr
    assert "hint: " in full.stderr

    journals = list((runner.folder / "out").glob(f"*/{JOURNAL_FILE}"))
    kept = read_committed_fingerprints(journals[0].parent) if journals else set()
    later = runner.finish(command)
    assert later.returncode == 0, later.stderr
    assert not compute_fingerprints(runner.read_request_ids()) & kept
    assert len(read_tables(runner.find_run_folder("out"))["responses"]) == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size_kb", "cache_too"), [(16, False), (700, False), (900, True)], ids=["at-once", "later", "cache-too"]
)
def test_a_run_on_a_full_disk_resumes_when_there_is_space(
    tmp_path: Path, size_kb: int, cache_too: bool
) -> None:
    try:
        filled = run_on_small_disk(tmp_path, size_kb, cache_too=cache_too)
    except CannotMount as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    if cache_too:  # answers that are only in the cache are not requested again either
        assert filled.kept + filled.asked_after <= filled.needed
    else:
        assert filled.kept + filled.asked_after == filled.needed
    assert (filled.kept > 0) == (size_kb > 16), "one of them is full before anything is answered"


# --- success ------------------------------------------------------------------------------------


def test_the_first_command_of_a_newcomer(runner: CommandRunner) -> None:
    """`assay run` prints progress to stderr and the table to stdout, and stores the run."""
    started = time.monotonic()
    first = runner.finish([*ASSAY, "run", "--limit", "4"])
    assert first.returncode == 0, first.stderr
    assert time.monotonic() - started < 60
    for word in (
        "quickstart_addition",
        "quickstart_shapes",
        "maj@8",
        "bits_per_byte",
        "scored",
        "unscored",
        "failed",
    ):
        assert word in first.stdout
    assert "stored in assay-runs/embedded-quickstart-" in first.stdout
    assert "next: " in first.stdout
    assert "running embedded on 6 tasks, 24 documents" in first.stderr
    assert "done  24/24 documents" in first.stderr
    assert (runner.folder / "home" / "cache.sqlite").is_file()
    again = runner.finish([*ASSAY, "run", "--limit", "4"])
    assert "already finished: embedded" in again.stderr
    assert again.stdout == first.stdout


# --- task code that never ends -------------------------------------------------------------------------

ENDLESS = {
    "loop": "def text(doc):\n    while True:\n        pass\n",
    "import": "while True:\n    pass\n",
}
COMMANDS = {
    "check": ["check", "TASK"],
    "show": ["show", "TASK"],
    "plan": ["plan", "TASK", "--model", "dummy"],
    "run": ["run", "--model", "dummy", "--tasks", "TASK"],
}


def write_endless(folder: Path, kind: str) -> str:
    return str(
        write_task(folder / kind, "endless", helpers=ENDLESS[kind], doc_to_text=Function("utils.text"))
    )


@pytest.mark.parametrize("kind", sorted(ENDLESS))
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_ends_task_code_at_the_time_limit(
    command: str,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    task = write_endless(tmp_path, kind)
    words = [task if word == "TASK" else word for word in COMMANDS[command]]
    assert run_command_line([*words, "--helper_timeout", "0.2"]) == 2
    out, err = capsys.readouterr()
    assert "exceeded its time limit of 0.2 s" in out + err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_one_signal_ends_planning_with_endless_task_code(
    runner: CommandRunner, kind: str, number: signal.Signals
) -> None:
    started = runner.folder / "started"
    task = Path(write_endless(runner.folder, kind))
    helper = task.parent / "utils.py"
    helper.write_text(
        helper.read_text().replace(
            "while True:", f"open({str(started)!r}, 'w')\n{'    ' * (kind == 'loop')}while True:", 1
        )
    )
    process = runner.start([*ASSAY, "plan", str(task), "--model", "dummy", "--helper_timeout", "0"])
    assert wait_until(started.exists, process)
    _, err = kill(process, number)
    assert process.returncode == 130, err
    assert "Traceback" not in err
