"""The long form of the fault tests, with a report: `make soak`.

python -m tests.flows.soak --points 120 --seed 5 --report benchmarks/SOAK.md
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.flows.kills import KillCounts, KillTest
from tests.flows.scenarios import DIALOGUES, IMAGES, JUDGED, REPEATED, TEXT
from tests.flows.small_disks import CannotMount, run_on_small_disk
from tests.flows.storms import run_until_complete

SCENARIOS = (TEXT, IMAGES, REPEATED, DIALOGUES, JUDGED)
SHARES = (0.1, 0.1, 0.1, 0.6)
SIZES_KB = (16, 200, 700, 1200)


class Soak:
    """Tries one thing after the other and writes down a line for each."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.begin = time.monotonic()
        self.failed: list[str] = []
        self.points = 0

    def attempt(self, name: str, work: Callable[[Path], str]) -> str:
        """What came of it, as the cells of a row; a broken promise is a line in the report, not the end."""
        begin = time.monotonic()
        with _make_folder() as folder:
            try:
                row = work(folder)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                self.failed.append(f"{name}: {error}")
                row = f"**BROKEN**: {str(error).splitlines()[0] if str(error) else 'see the output'}"
        line = f"| {name} | {row} | {time.monotonic() - begin:.0f} s |"
        print(line, flush=True)
        return line

    def run_kills(self, points: int) -> Iterator[str]:
        """`kill -9`, this many times in each scenario."""
        for scenario in SCENARIOS:

            def work(folder: Path, scenario: object = scenario) -> str:
                ordeal = KillTest(folder, scenario, self.seed)  # type: ignore[arg-type]
                try:
                    ordeal.kill_at_points(points)
                finally:
                    self.points += ordeal.tally.points.total()
                return _format_counts(ordeal.tally)

            yield self.attempt(scenario.name, work)

    def run_faulty_servers(self) -> Iterator[str]:
        """Servers that fail."""
        for number, share in enumerate(SHARES):

            def work(folder: Path, share: float = share, seed: int = self.seed + number) -> str:
                found = run_until_complete(folder, share=share, seed=seed, documents=150)
                kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.faults.items()))
                return f"{found.questions} | {found.passes} | {found.calls} | {found.faults.total()}: {kinds}"

            yield self.attempt(f"{share:.0%}, seed {self.seed + number}", work)

    def run_full_disks(self) -> Iterator[str]:
        """Disks that fill up."""
        for size in SIZES_KB:

            def work(folder: Path, size: int = size) -> str:
                try:
                    found = run_on_small_disk(folder, size)
                except CannotMount as error:
                    return f"not tried: {error} | | "
                return f"{found.needed} | {found.kept} | {found.asked_after}"

            yield self.attempt(f"{size} KB", work)


@contextmanager
def _make_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-soak-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _format_counts(tally: KillCounts) -> str:
    when = ", ".join(f"{tally.points[phase]} {phase}" for phase in ("starting", "asking", "ending"))
    return (
        f"{tally.points.total()} ({when}) | {tally.runs} | {tally.needed} | {tally.calls} | {tally.in_flight}"
        f" (at most {tally.max_in_flight}) | {tally.lost} | {tally.repeated} | all identical"
    )


def format_report(soak: Soak, kills: list[str], storms: list[str], disks: list[str]) -> str:
    """The page."""
    lines = [
        "# Soak: faults on purpose",
        "",
        "Written by `make soak` (`tests/flows/soak.py`); the same things, fewer of them, are tested in CI.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, Assay {version('assay-harness')}, Python {platform.python_version()},"
        f" {platform.system()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
        f"- seed {soak.seed}; {soak.points} kills; {time.monotonic() - soak.begin:.0f} s in all",
        f"- {'**' + str(len(soak.failed)) + ' broken promises**' if soak.failed else 'every promise kept'}",
        "",
        "## `kill -9`",
        "",
        "Each run is killed at one to three points and then left to finish by the same command; its documents, requests,",
        "responses, answers, verdicts, outcomes and estimates must be those of a run nobody killed, to the bit. *Calls* are",
        "counted by the model and its judge. An answer that was on its way when the process died is asked for again; one",
        "that was on disk never is: calls = runs x needed + on their way.",
        "",
        "| scenario | points | runs | calls needed | calls made | on their way at a kill | lost from disk | asked again"
        " | results | took |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *kills,
        "",
        "## A server that fails",
        "",
        "A real HTTP server fails this share of the calls, in thirteen ways. The command is repeated until nothing is missing.",
        "After every pass: each answer is the one the server gave to that question, failed documents are counted as failed",
        "and in no mean, the cache holds no failure, nothing answered is asked again, the exit code is right.",
        "",
        "| share | questions | passes | calls | faults | took |",
        "|---|---|---|---|---|---|",
        *storms,
        "",
        "## A full disk",
        "",
        "A run on a file system of this size: it stops with a plain error; with more room the same command finishes with the",
        "results of an undisturbed run.",
        "",
        "| size | calls needed | on disk when full | asked afterwards | took |",
        "|---|---|---|---|---|",
        *disks,
    ]
    if soak.failed:
        lines += ["", "## Broken", "", *(f"```text\n{text}\n```" for text in soak.failed)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Read the arguments, try everything, write the report; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=120, help="kills in all")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--report", type=Path, default=None, help="file for the report (else it is printed)")
    given = parser.parse_args()
    soak = Soak(given.seed)
    kills = list(soak.run_kills(-(-given.points // len(SCENARIOS))))
    page = format_report(soak, kills, list(soak.run_faulty_servers()), list(soak.run_full_disks()))
    if given.report is None:
        print(page)
    else:
        given.report.write_text(page, "utf-8")
    for text in soak.failed:
        print(text, file=sys.stderr)
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
