"""Judged runs: no judge request is repeated, and a judge that is down or silent does not block the run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.assay_compat.judge_server import serving
from tests.flows.running import CommandRunner, read_tables, wait_until
from tests.flows.scenarios import HELPER, JUDGED, write_judged_tasks


@pytest.mark.slow
def test_a_finished_judged_run_sends_no_requests(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    command = runner.build_command(*JUDGED.options(runner), "--no_cache", "--output_path", "out", window=4)
    assert runner.finish(command).returncode == 0
    found = read_tables(runner.find_run_folder("out"))
    assert (
        len(runner.read_judge_request_ids())
        == len({mark for _, _, _, mark, *_ in found["judge_requests"]})
        == 75
    )
    assert len(found["verdicts"]) == 25 * (3 + 2)
    assert {row[2] for row in found["outcomes"]} == {"scored"}
    asked = len(runner.read_all_request_ids())
    assert runner.finish(command).returncode == 0
    assert len(runner.read_all_request_ids()) == asked


@pytest.mark.slow
def test_a_judge_that_is_down_affects_only_its_own_replies(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    down = tmp_path / "down"
    tasks = write_judged_tasks(tmp_path / "tasks")
    judge = ["--judge", f"slow,log={runner.judge_log},delay_ms=0,broken={down},share=0.5"]
    command = runner.build_command(*tasks, *judge, "--no_cache", "--output_path", "out")
    down.touch()
    first = runner.finish(command)
    assert first.returncode == 1, "failed requests above the allowed share"
    assert "judge-failed: rated" in first.stdout
    assert "judge slow: 75 requests" in first.stdout
    words = {row[2] for row in read_tables(runner.find_run_folder("out"))["outcomes"]}
    assert words == {"scored", "judge-failed"}
    down.unlink()
    asked = len(runner.read_request_ids())
    second = runner.finish(command)
    assert second.returncode == 0, second.stderr
    assert len(runner.read_request_ids()) == asked, "the model is not asked again for its judge's sake"
    assert {row[2] for row in read_tables(runner.find_run_folder("out"))["outcomes"]} == {"scored"}


@pytest.mark.slow
@pytest.mark.server
def test_a_run_waiting_for_a_silent_judge_stops_on_a_signal(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    helper = HELPER.replace('"assay"', '"openai"')
    (tasks,) = write_judged_tasks(tmp_path / "tasks")[1:]
    (tmp_path / "tasks" / "own" / "utils.py").write_text(helper)
    with serving(lambda payload, number: "1" if number < 3 else 120.0) as server:
        runner.environment |= {"OPENAI_API_KEY": "k", "OPENAI_API_URL": server.url}
        command = runner.build_command(tasks, "--no_cache", "--output_path", "out")
        process = runner.start(command)
        wait_until(lambda: len(server.asked) > 6, process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        asked = len(server.asked)
        server.reply = lambda payload, number: "1"
        last = runner.finish(command)
        assert last.returncode == 0, last.stderr
        assert len(server.asked) == asked + 25 - 3, "what was answered is not asked again"
