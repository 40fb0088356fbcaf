"""`kill -9` at any moment loses only answers in flight; the same command finishes with identical results."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.command_server import OTHER_HASH_SEED
from tests.flows.kills import MAX_IN_FLIGHT_AT_KILL, KillCounts, KillTest
from tests.flows.running import (
    ASSAY,
    CommandRunner,
    compute_fingerprints,
    kill,
    read_committed_fingerprints,
    read_tables,
    wait_until,
)
from tests.flows.scenarios import DIALOGUES, JUDGED, MIXED, Scenario

from assay.store.journal.journal import JOURNAL_FILE

KILLS = 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", [MIXED, DIALOGUES, JUDGED], ids=lambda scenario: scenario.name.replace(" ", "-")
)
def test_a_killed_run_resumes_with_identical_results(tmp_path: Path, scenario: Scenario) -> None:
    """A few kill points; `make soak` tests more than a hundred, for each scenario."""
    tally = KillTest(tmp_path, scenario, seed=20240613).kill_at_points(KILLS)
    assert tally.points.total() == KILLS
    assert (tally.repeated, tally.lost) == (0, 0)
    assert tally.calls == tally.runs * tally.needed + tally.in_flight


def test_a_missing_answer_is_detected() -> None:
    """The check detects a missing row, an extra row, and a repeated request."""
    ordeal = KillTest.__new__(KillTest)
    ordeal.tally = KillCounts()
    (mark,) = compute_fingerprints(["r"])
    for calls, kept, now in (
        ([], {mark: [" 1"]}, {}),
        ([], {mark: [" 1"]}, {mark: [" 2"]}),
        (["r"], {mark: [" 1"]}, {mark: [" 1"]}),
        (["r", "r"], {}, {mark: [" 1"]}),
        ([], {}, {mark: [" 1"]}),
        ([str(n) for n in range(MAX_IN_FLIGHT_AT_KILL + 1)], {}, {}),
    ):
        with pytest.raises(AssertionError):
            ordeal._check_calls(calls, kept, now)
    assert ordeal._check_calls(["r", "s"], {}, {mark: [" 1"]}) == 1


@pytest.mark.slow
def test_the_embedded_model_gives_identical_results_after_three_kills(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    options = ["run", "quickstart", "--limit", "12", "--no_cache"]
    whole = runner.finish([*ASSAY, *options, "--output_path", "whole"], hash_seed=OTHER_HASH_SEED)
    assert whole.returncode == 0, whole.stderr
    expected = read_tables(runner.find_run_folder("whole"))
    total, kills = len(expected["responses"]), 0

    for target in random.Random(7).sample(range(1, total // 2), 3):
        process = runner.start([*ASSAY, *options, "--output_path", "killed"])

        def enough(target: int = target) -> bool:
            journals = list((tmp_path / "killed").glob(f"*/{JOURNAL_FILE}-wal"))
            return bool(journals) and len(read_committed_fingerprints(journals[0].parent)) >= target

        wait_until(enough, process)
        kill(process)
        kills += process.returncode == -9
    last = runner.finish([*ASSAY, *options, "--output_path", "killed"])
    assert last.returncode == 0, last.stderr
    assert kills, "at least one kill came in time"
    assert read_tables(runner.find_run_folder("killed")) == expected
