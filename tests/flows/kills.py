"""`kill -9` at seeded points of a run, the same command again, and every call of the model accounted for.

    calls of a model = answers on disk in the end + answers that were on their way at a kill

The points are drawn from a seed; where exactly a process is when the signal arrives is up to the machine.
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

from tests.flows.running import CommandRunner, compute_fingerprints, kill, read_tables, wait_until
from tests.flows.scenarios import Scenario

from assay.store.journal.journal import JOURNAL_FILE

MAX_IN_FLIGHT_AT_KILL = 64
"""Answers one kill may cost: open windows, and what came while a group was being committed on a slow disk."""

_MAX_LATE_KILLS = 20
"""Kills in a row that may come too late before something else is the matter."""


@dataclass(slots=True)
class KillCounts:
    """What the kills of one scenario came to."""

    needed: int = 0
    """Calls that a run without any kill makes."""

    runs: int = 0
    points: Counter[str] = field(default_factory=Counter)
    """Kills that hit a living process, by what it was doing: starting, asking, ending."""

    late_kills: int = 0
    """Kills that came when the process had just ended by itself; not counted as points."""

    calls: int = 0
    in_flight: int = 0
    """Answers that were given but not yet on disk at a kill: asked again."""

    max_in_flight: int = 0
    repeated: int = 0
    """Answers on disk that were asked for again."""

    lost: int = 0
    """Answers on disk that were not there, or not the same, afterwards."""


class KillTest:
    """One scenario: run whole once, then killed and continued as often as wanted."""

    def __init__(self, folder: Path, scenario: Scenario, seed: int) -> None:
        self.bench = CommandRunner(folder)
        self.scenario = scenario
        self.generator = random.Random(f"{seed} {scenario.name}")
        self.options = [*scenario.options(self.bench), "--no_cache"]
        self.tally = KillCounts()
        begin = time.monotonic()
        process = self.bench.start(self._build_command("whole"))
        wait_until(lambda: bool(self.bench.read_all_request_ids()), process)
        self.start_s = time.monotonic() - begin
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        self.expected = read_tables(self.bench.find_run_folder("whole"))
        assert {table for table in self.expected if not self.expected[table]} == scenario.empty
        self.tally.needed = len(self.bench.read_all_request_ids())
        assert self.tally.needed == len(set(self.bench.read_all_request_ids())), "nothing is asked twice"

    def kill_at_points(self, points: int, *, at_most: int = 3) -> KillCounts:
        """Kill at this many points, in runs that are killed one to `at_most` times before they may finish."""
        late = 0
        while (left := points - self.tally.points.total()) > 0:
            before = self.tally.points.total()
            self._kill_and_finish(min(left, self.generator.randint(1, at_most)))
            late = late + 1 if self.tally.points.total() == before else 0
            assert late < _MAX_LATE_KILLS, "every kill came too late"
        return self.tally

    def _build_command(self, output: str) -> list[str]:
        return self.bench.build_command(*self.options, "--output_path", output, **self.scenario.model)

    def _kill_and_finish(self, kills: int) -> None:
        """Kill and continue a fresh run; in the end it holds what one holds that was left alone."""
        bench, tally = self.bench, self.tally
        output = f"killed-{tally.runs}"
        tally.runs += 1
        bench.clear_logs()
        kept: Mapping[str, Any] = {}
        seen = in_flight = 0
        for _ in range(kills):
            process = bench.start(self._build_command(output))
            phase = self._wait_for_kill_point(process, seen, len(kept))
            kill(process)
            if process.returncode == -9:
                tally.points[phase] += 1
            else:
                assert process.returncode == 0, process.returncode
                tally.late_kills += 1
            calls = bench.read_all_request_ids()[seen:]
            seen += len(calls)
            now = _read_answers(bench.folder / output)
            in_flight += self._check_calls(calls, kept, now)
            kept = now
        last = bench.finish(self._build_command(output))
        assert last.returncode == 0, last.stderr
        calls = bench.read_all_request_ids()[seen:]
        rest = self._check_calls(calls, kept, _read_answers(bench.folder / output))
        assert rest == 0, "a run that ends by itself writes down everything"
        assert read_tables(bench.find_run_folder(output)) == self.expected
        assert seen + len(calls) == tally.needed + in_flight, "every call is accounted for"
        tally.calls += seen + len(calls)
        tally.in_flight += in_flight
        shutil.rmtree(bench.folder / output)

    def _wait_for_kill_point(self, process: Any, seen: int, kept: int) -> str:
        """Let a process live until the next point: mostly after some calls, sometimes before or after all of them."""
        draw, bench = self.generator.random(), self.bench
        left = self.tally.needed - kept
        if draw < 0.15:
            time.sleep(self.generator.uniform(0, self.start_s))
            return "starting"
        calls = left if draw > 0.88 else self.generator.randint(1, max(left, 1))
        wait_until(partial(bench.has_total_requests, seen + calls), process, timeout_s=300)
        time.sleep(self.generator.uniform(0, 0.15 if calls == left else 0.02))
        return "ending" if calls == left else "asking"

    def _check_calls(self, calls: list[str], kept: Mapping[str, Any], now: Mapping[str, Any]) -> int:
        """Hold what the model was asked in one life against what was on disk before and after it."""
        given = compute_fingerprints(calls)
        repeated = given & kept.keys()
        lost = {mark for mark in kept if now.get(mark) != kept[mark]}
        self.tally.repeated += len(repeated)
        self.tally.lost += len(lost)
        assert not repeated, "what was on disk was asked again"
        assert not lost, "what was on disk is gone"
        assert len(given) == len(calls), "something was asked twice by one process"
        assert now.keys() - kept.keys() <= given, "an answer is on disk that nobody gave"
        on_their_way = len(given - now.keys())
        self.tally.max_in_flight = max(self.tally.max_in_flight, on_their_way)
        assert on_their_way <= MAX_IN_FLIGHT_AT_KILL, f"{on_their_way} answers were not on disk yet"
        return on_their_way


def _read_answers(output: Path) -> dict[str, Any]:
    """The answers on disk by fingerprint, as they are; the file is sound, whatever happened."""
    journals = list(output.glob(f"*/{JOURNAL_FILE}"))
    if not journals:
        return {}
    with closing(sqlite3.connect(journals[0])) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not journal.execute("SELECT count(*) FROM sqlite_master WHERE name = 'responses'").fetchone()[0]:
            return {}
        columns = "fingerprint, text, logprob, greedy, finish, input_tokens, output_tokens"
        return {mark: answer for mark, *answer in journal.execute(f"SELECT {columns} FROM responses")}
