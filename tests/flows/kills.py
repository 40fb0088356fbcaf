"""Kill a run with `kill -9` at seeded points, repeat the command, and account for every call of the model.

    calls of a model = answers on disk at the end + answers in flight at a kill

The points depend on a seed; the exact state of the process when the signal arrives depends on the machine.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.command_server import OTHER_HASH_SEED
from tests.flows.running import CommandRunner, compute_fingerprints, kill, read_tables, wait_until
from tests.flows.scenarios import Scenario

from assay.store.journal.journal import JOURNAL_FILE

MAX_IN_FLIGHT_AT_KILL = 64
"""Answers that one kill may lose: open windows, and answers that arrive during a slow commit."""

_MAX_LATE_KILLS = 20
"""The number of consecutive late kills after which the test fails."""


@dataclass(slots=True)
class KillCounts:
    """Counts of the kills of one scenario."""

    needed: int = 0
    """Calls of a run without kills."""

    runs: int = 0
    points: Counter[str] = field(default_factory=Counter)
    """Kills of a running process, by its phase: starting, asking, ending."""

    late_kills: int = 0
    """Kills after the process had ended by itself; not counted as points."""

    calls: int = 0
    in_flight: int = 0
    """Answers that were not yet on disk at a kill and were requested again."""

    max_in_flight: int = 0
    repeated: int = 0
    """Stored answers that were requested again."""

    lost: int = 0
    """Stored answers that were missing or different afterwards."""


class KillTest:
    """Runs a scenario once without kills, then kills and resumes it."""

    def __init__(self, folder: Path, scenario: Scenario, seed: int) -> None:
        self.runner = CommandRunner(folder)
        self.scenario = scenario
        self.generator = random.Random(f"{seed} {scenario.name}")
        self.options = [*scenario.options(self.runner), "--no_cache"]
        self.tally = KillCounts()
        begin = time.monotonic()
        process = self.runner.start(self._build_command("whole"))
        wait_until(lambda: bool(self.runner.read_all_request_ids()), process)
        self.start_s = time.monotonic() - begin
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        self.expected = read_tables(self.runner.find_run_folder("whole"))
        assert {table for table in self.expected if not self.expected[table]} == scenario.empty
        self.tally.needed = len(self.runner.read_all_request_ids())
        assert self.tally.needed == len(set(self.runner.read_all_request_ids())), "no request is sent twice"

    def kill_at_points(self, points: int, *, at_most: int = 3) -> KillCounts:
        """Kill at this many points, in runs that are killed one to `at_most` times before they finish."""
        late = 0
        while (left := points - self.tally.points.total()) > 0:
            before = self.tally.points.total()
            self._kill_and_finish(min(left, self.generator.randint(1, at_most)))
            late = late + 1 if self.tally.points.total() == before else 0
            assert late < _MAX_LATE_KILLS, "every kill was late"
        return self.tally

    def _build_command(self, output: str) -> list[str]:
        return self.runner.build_command(*self.options, "--output_path", output, **self.scenario.model)

    def _kill_and_finish(self, kills: int) -> None:
        """Kill and resume a new run, and compare its journal with that of a run without kills."""
        runner, tally = self.runner, self.tally
        output = f"killed-{tally.runs}"
        tally.runs += 1
        runner.clear_logs()
        kept: Mapping[str, Any] = {}
        seen = in_flight = 0
        for _ in range(kills):
            process = runner.start(self._build_command(output))
            phase = self._wait_for_kill_point(process, seen, len(kept))
            kill(process)
            if process.returncode == -9:
                tally.points[phase] += 1
            else:
                assert process.returncode == 0, process.returncode
                tally.late_kills += 1
            calls = runner.read_all_request_ids()[seen:]
            seen += len(calls)
            now = _read_answers(runner.folder / output)
            in_flight += self._check_calls(calls, kept, now)
            kept = now
        other = (
            OTHER_HASH_SEED if tally.runs == 1 else ""
        )  # once: results must not depend on the order of sets
        last = runner.finish(self._build_command(output), hash_seed=other)
        assert last.returncode == 0, last.stderr
        calls = runner.read_all_request_ids()[seen:]
        rest = self._check_calls(calls, kept, _read_answers(runner.folder / output))
        assert rest == 0, "a run that ends by itself stores every answer"
        assert read_tables(runner.find_run_folder(output)) == self.expected
        assert seen + len(calls) == tally.needed + in_flight, "every call is accounted for"
        tally.calls += seen + len(calls)
        tally.in_flight += in_flight
        shutil.rmtree(runner.folder / output)

    def _wait_for_kill_point(self, process: Any, seen: int, kept: int) -> str:
        """Wait for the next kill point: usually after some calls, sometimes before or after all of them."""
        draw, runner = self.generator.random(), self.runner
        left = self.tally.needed - kept
        if draw < 0.15:
            time.sleep(self.generator.uniform(0, self.start_s))
            return "starting"
        calls = left if draw > 0.88 else self.generator.randint(1, max(left, 1))
        wait_until(partial(runner.has_total_requests, seen + calls), process, timeout_s=300)
        time.sleep(self.generator.uniform(0, 0.15 if calls == left else 0.02))
        return "ending" if calls == left else "asking"

    def _check_calls(self, calls: list[str], kept: Mapping[str, Any], now: Mapping[str, Any]) -> int:
        """Compare the calls of one process with the stored answers before and after it; return how many were in flight."""
        given = compute_fingerprints(calls)
        repeated = given & kept.keys()
        lost = {fingerprint for fingerprint in kept if now.get(fingerprint) != kept[fingerprint]}
        self.tally.repeated += len(repeated)
        self.tally.lost += len(lost)
        assert not repeated, "a stored answer was requested again"
        assert not lost, "a stored answer is missing"
        assert len(given) == len(calls), "one process sent a request twice"
        assert now.keys() - kept.keys() <= given, "a stored answer has no call"
        in_flight = len(given - now.keys())
        self.tally.max_in_flight = max(self.tally.max_in_flight, in_flight)
        assert in_flight <= MAX_IN_FLIGHT_AT_KILL, f"{in_flight} answers were not on disk yet"
        return in_flight


def _read_answers(output: Path) -> dict[str, Any]:
    """Return the stored answers by fingerprint, and check the integrity of the journal."""
    journals = list(output.glob(f"*/{JOURNAL_FILE}"))
    if not journals:
        return {}
    with closing(sqlite3.connect(journals[0])) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not journal.execute("SELECT count(*) FROM sqlite_master WHERE name = 'responses'").fetchone()[0]:
            return {}
        columns = "fingerprint, text, logprob, greedy, finish, input_tokens, output_tokens"
        return {
            fingerprint: answer
            for fingerprint, *answer in journal.execute(f"SELECT {columns} FROM responses")
        }
