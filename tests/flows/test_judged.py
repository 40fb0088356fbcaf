"""A judged run that is killed and continued ends as if nothing had happened, and asks no judge twice."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from tests.assay_compat.judge_server import serving
from tests.flows.running import Bench, committed, contents, fingerprints, kill, wait_until
from tests.making import Function, write_task

from assay.store.journal import FILE_NAME

KILLS = 6
IN_FLIGHT = 16
"""Answers of the judge that a kill may cost: a window, and what came during one commit."""

HELPER = """
import random
from lmms_eval.llm_judge import ServerConfig, get_server

server = get_server("assay", ServerConfig(model_name="any"))

def process(doc, results):
    told = server.evaluate_binary(question=doc["question"], answer=doc["answer"], prediction=results[0])
    return {"told": told["result"], "drawn": random.random()}
"""
RATED = {
    "metric": "rated",
    "judge": {"kind": "score", "range": [0, 3], "repeats": 2, "settings": {"temperature": 1.0}},
}
"""The slow model says a digit from 0 to 3 to everything, which is a rating on this scale."""


def judged_tasks(folder: Path) -> list[str]:
    rows = [{"question": f"What is {n} - {n} + {n % 4}?", "answer": str(n % 4)} for n in range(25)]
    native = write_task(folder / "native", "rated", rows, metric_list=[RATED, {"metric": "exact_match"}])
    metrics = [
        {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("told", "drawn")
    ]
    own = write_task(
        folder / "own",
        "own",
        rows,
        helpers=HELPER,
        process_results=Function("utils.process"),
        metric_list=metrics,
    )
    return [str(native), str(own)]


@pytest.mark.slow
def test_a_judged_run_killed_again_and_again_asks_no_judge_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    judge_log = tmp_path / "judged.log"

    def judged() -> list[str]:
        lines = judge_log.read_text().splitlines() if judge_log.exists() else []
        return [line for line in lines if line not in ("open", "close")]

    judge = ["--judge", f"slow,log={judge_log},delay_ms=4,window=4"]
    options = [*judged_tasks(tmp_path / "tasks"), *judge, "--no_cache"]
    whole = bench.finish(bench.command(*options, "--output_path", "whole", window=4))
    assert whole.returncode == 0, whole.stderr
    expected, total = contents(bench.run_folder("whole")), len(judged())
    assert total == len({mark for _, _, _, mark, *_ in expected["judge_requests"]}) == 75
    assert len(expected["verdicts"]) == 25 * (3 + 2)
    assert {row[2] for row in expected["outcomes"]} == {"scored"}
    judge_log.unlink()
    bench.log.unlink()

    generator = random.Random(11)
    command = bench.command(*options, "--output_path", "killed", window=4)
    kept: set[str] = set()
    seen = kills = 0
    for target in sorted(generator.sample(range(2, total - 15), KILLS)):
        process = bench.start(command)
        least = max(target, seen + 1)
        wait_until(lambda least=least: len(judged()) >= least, process)  # type: ignore[misc]
        time.sleep(generator.uniform(0, 0.02))
        kill(process)
        kills += process.returncode == -9
        asked = judged()[seen:]
        assert not fingerprints(asked) & kept, "a judge was asked again what was on disk"
        seen += len(asked)
        (journal,) = (tmp_path / "killed").glob(f"*/{FILE_NAME}")
        kept = committed(journal.parent)
    last = bench.finish(command)
    assert last.returncode == 0, last.stderr
    assert not fingerprints(judged()[seen:]) & kept
    assert kills >= KILLS - 1, "the last one may come too late on a busy machine"
    assert contents(bench.run_folder("killed")) == expected
    assert len(judged()) - total <= KILLS * IN_FLIGHT
    asked_in_all = len(judged())
    assert bench.finish(command).returncode == 0
    assert len(judged()) == asked_in_all


@pytest.mark.slow
def test_a_judge_that_is_down_costs_nothing_but_its_own_answers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    judge_log, down = tmp_path / "judged.log", tmp_path / "down"
    tasks = judged_tasks(tmp_path / "tasks")
    judge = ["--judge", f"slow,log={judge_log},delay_ms=0,broken={down},share=0.5"]
    command = bench.command(*tasks, *judge, "--no_cache", "--output_path", "out")
    down.touch()
    first = bench.finish(command)
    assert first.returncode == 1, "failed requests above the allowed share"
    assert "judge-failed: rated" in first.stdout
    assert "judge slow: 75 requests" in first.stdout
    words = {row[2] for row in contents(bench.run_folder("out"))["outcomes"]}
    assert words == {"scored", "judge-failed"}
    down.unlink()
    asked = len(bench.asked())
    second = bench.finish(command)
    assert second.returncode == 0, second.stderr
    assert len(bench.asked()) == asked, "the model is not asked again for its judge's sake"
    assert {row[2] for row in contents(bench.run_folder("out"))["outcomes"]} == {"scored"}


@pytest.mark.slow
@pytest.mark.server
def test_a_run_that_waits_for_a_silent_judge_stops_when_told_to(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    helper = HELPER.replace('"assay"', '"openai"')
    (tasks,) = judged_tasks(tmp_path / "tasks")[1:]
    (tmp_path / "tasks" / "own" / "utils.py").write_text(helper)
    with serving(lambda payload, number: "1" if number < 3 else 120.0) as server:
        bench.environment |= {"OPENAI_API_KEY": "k", "OPENAI_API_URL": server.url}
        command = bench.command(tasks, "--no_cache", "--output_path", "out")
        process = bench.start(command)
        wait_until(lambda: len(server.asked) > 6, process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        asked = len(server.asked)
        server.reply = lambda payload, number: "1"
        last = bench.finish(command)
        assert last.returncode == 0, last.stderr
        assert len(server.asked) == asked + 25 - 3, "what was answered is not asked again"
