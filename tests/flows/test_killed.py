"""`kill -9` at any moment loses at most what was in flight; the same command finishes with the same bits."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pytest
from tests.flows.running import ASSAY, Bench, committed, contents, fingerprints, kill, wait_until

from assay.store.journal import FILE_NAME

KILLS = 10
WINDOW = 4


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    tasks = bench.write_tasks(documents=30)
    options = [*tasks, "--limit", "20", "--no_cache", "--seed", "3"]
    whole = bench.finish(bench.command(*options, "--output_path", "whole", window=WINDOW))
    assert whole.returncode == 0, whole.stderr
    expected, total = contents(bench.run_folder("whole")), len(bench.asked())
    assert {table for table in expected if not expected[table]} == {"judge_requests"}
    bench.log.unlink()

    generator = random.Random(20240613)
    targets = sorted(generator.sample(range(1, total - 20), KILLS - 2))
    command = bench.command(*options, "--output_path", "killed", window=WINDOW)
    kept: set[str] = set()
    seen = kills = 0
    for target in [0, 0, *targets]:  # twice while it starts, then while it asks
        process = bench.start(command)
        if target == 0:
            time.sleep(generator.uniform(0.05, 0.4))
        else:
            wait_until(partial(bench.has_asked, max(1, target - len(kept)), since=seen), process)
            time.sleep(generator.uniform(0, 0.02))
        kill(process)
        kills += process.returncode == -9
        asked = bench.asked(seen)
        assert not fingerprints(asked) & kept, "what was on disk was asked again"
        seen += len(asked)
        journals = list((tmp_path / "killed").glob(f"*/{FILE_NAME}"))
        kept = committed(journals[0].parent) if journals else set()
    last = bench.finish(command)
    assert last.returncode == 0, last.stderr
    assert "continuing" in last.stderr
    assert not fingerprints(bench.asked(seen)) & kept

    assert kills >= KILLS - 1, "the last one may come too late on a busy machine"
    assert contents(bench.run_folder("killed")) == expected
    times = bench.asked_times()
    assert len(times) == total
    assert sum(times.values()) - total <= KILLS * (WINDOW + 16), (
        "a window in flight, and what came during one commit"
    )


@pytest.mark.slow
def test_the_embedded_model_killed_three_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    options = ["run", "quickstart", "--limit", "12", "--no_cache"]
    whole = bench.finish([*ASSAY, *options, "--output_path", "whole"])
    assert whole.returncode == 0, whole.stderr
    expected = contents(bench.run_folder("whole"))
    total, kills = len(expected["responses"]), 0

    for target in random.Random(7).sample(range(1, total // 2), 3):
        process = bench.start([*ASSAY, *options, "--output_path", "killed"])

        def enough(target: int = target) -> bool:
            journals = list((tmp_path / "killed").glob(f"*/{FILE_NAME}-wal"))
            return bool(journals) and len(committed(journals[0].parent)) >= target

        wait_until(enough, process)
        kill(process)
        kills += process.returncode == -9
    last = bench.finish([*ASSAY, *options, "--output_path", "killed"])
    assert last.returncode == 0, last.stderr
    assert kills, "at least one kill came in time"
    assert contents(bench.run_folder("killed")) == expected
