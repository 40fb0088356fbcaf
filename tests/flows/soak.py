"""Run the long version of the fault tests and write a report: `make soak`.

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

from tests.flows.faulty_runs import run_until_complete
from tests.flows.kills import KillCounts, KillTest
from tests.flows.scenarios import DIALOGUES, IMAGES, JUDGED, REPEATED, TEXT
from tests.flows.small_disks import CannotMount, run_on_small_disk

SCENARIOS = (TEXT, IMAGES, REPEATED, DIALOGUES, JUDGED)
SHARES = (0.1, 0.1, 0.1, 0.6)
SIZES_KB = (16, 200, 700, 1200)


class Soak:
    """Runs the fault tests and formats a table row for each."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.begin = time.monotonic()
        self.failed: list[str] = []
        self.points = 0

    def attempt(self, name: str, work: Callable[[Path], str]) -> str:
        """Run one test and return its table row; a failed check is recorded and does not stop the others."""
        begin = time.monotonic()
        with _make_folder() as folder:
            try:
                row = work(folder)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                self.failed.append(f"{name}: {error}")
                row = f"**FAILED**: {str(error).splitlines()[0] if str(error) else 'see the output'}"
        line = f"| {name} | {row} | {time.monotonic() - begin:.0f} s |"
        print(line, flush=True)
        return line

    def run_kills(self, points: int) -> Iterator[str]:
        """Kill each scenario at this many points."""
        for scenario in SCENARIOS:

            def work(folder: Path, scenario: object = scenario) -> str:
                kill_test = KillTest(folder, scenario, self.seed)  # type: ignore[arg-type]
                try:
                    kill_test.kill_at_points(points)
                finally:
                    self.points += kill_test.tally.points.total()
                return _format_counts(kill_test.tally)

            yield self.attempt(scenario.name, work)

    def run_faulty_servers(self) -> Iterator[str]:
        """Run with faulty servers."""
        for number, share in enumerate(SHARES):

            def work(folder: Path, share: float = share, seed: int = self.seed + number) -> str:
                found = run_until_complete(folder, share=share, seed=seed, documents=150)
                kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.faults.items()))
                return f"{found.questions} | {found.passes} | {found.calls} | {found.faults.total()}: {kinds}"

            yield self.attempt(f"{share:.0%}, seed {self.seed + number}", work)

    def run_full_disks(self) -> Iterator[str]:
        """Run on disks that are too small."""
        for size in SIZES_KB:

            def work(folder: Path, size: int = size) -> str:
                try:
                    found = run_on_small_disk(folder, size)
                except CannotMount as error:
                    return f"not run: {error} | | "
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


def format_report(soak: Soak, kills: list[str], faulty_servers: list[str], disks: list[str]) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Soak test: injected faults",
        "",
        "`make soak` (`tests/flows/soak.py`) generates this page. CI runs a shorter version of the same tests.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, Assay {version('assay-harness')}, Python {platform.python_version()},"
        f" {platform.system()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
        f"- seed {soak.seed}; {soak.points} kills; {time.monotonic() - soak.begin:.0f} s in total",
        f"- {'**' + str(len(soak.failed)) + ' failed checks**' if soak.failed else 'all checks passed'}",
        "",
        "## `kill -9`",
        "",
        "Each run is killed at one to three points and then completed with the same command. Its documents, requests, responses,",
        "answers, verdicts, outcomes and estimates must be identical to those of a run without kills. The model and its judge count",
        "the *calls*. Only answers in flight at a kill are requested again, never stored ones: calls made = runs x calls needed +",
        "in flight.",
        "",
        "| scenario | kills | runs | calls needed | calls made | in flight at a kill | stored answers lost"
        " | stored answers requested again | results | time |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *kills,
        "",
        "## Faulty server",
        "",
        "An HTTP server fails this share of the calls, in thirteen ways. The command is repeated until every question is answered.",
        "After every pass, each stored answer is the reply of the server to that question, failed documents count as failed and are in",
        "no mean, the cache contains no failure, no answered question is sent again, and the exit code is correct.",
        "",
        "| share | questions | passes | calls | faults | time |",
        "|---|---|---|---|---|---|",
        *faulty_servers,
        "",
        "## Full disk",
        "",
        "A run on a file system of this size stops with a clear error. With more space, the same command completes it with the results",
        "of an undisturbed run.",
        "",
        "| size | calls needed | stored when full | requested afterwards | time |",
        "|---|---|---|---|---|",
        *disks,
    ]
    if soak.failed:
        lines += ["", "## Failed checks", "", *(f"```text\n{text}\n```" for text in soak.failed)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all fault tests and write the report; return 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=120, help="total number of kills")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument(
        "--report", type=Path, default=None, help="file for the report (default: standard output)"
    )
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
