"""Run the long version of the fault tests and write a report: `make soak`.

python -m tests.flows.soak --points 300 --seed 5 --report benchmarks/SOAK.md
python -m tests.flows.soak --only lying-servers,slow-disks --report benchmarks/SOAK.md   # replaces these sections only
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.flows.faulty_runs import run_until_complete
from tests.flows.kills import KillCounts, KillTest
from tests.flows.lying_server import BEHAVIOURS, PROTOCOLS, check_behaviour
from tests.flows.scenarios import DIALOGUES, IMAGES, JUDGED, REPEATED, TEXT
from tests.flows.slow_disks import CannotDelay, kill_on_slow_disk
from tests.flows.small_disks import CannotMount, run_on_small_disk
from tests.flows.soak_damages import DAMAGE_COLUMNS, DAMAGE_TEXT, list_kinds, run_damages
from tests.sandboxes.soak_attacks import ATTACK_COLUMNS, ATTACK_TEXT, attack_sandboxes

SCENARIOS = (TEXT, IMAGES, REPEATED, DIALOGUES, JUDGED)
SHARES = (0.1, 0.1, 0.1, 0.6)
SIZES_KB = (16, 200, 700, 1200)
SLOW_DISKS: tuple[dict[str, int], ...] = (
    {"fsync_ms": 100, "in_flight": 24},
    {"fsync_ms": 1500, "in_flight": 24},
    {"fsync_ms": 1500, "in_flight": 64},
    {"fsync_ms": 6000, "in_flight": 24, "kill_after": 400},
    {"fsync_ms": 1500, "replicas": 2, "kill_after": 150, "documents": 400},
    {"fsync_ms": 0, "replicas": 2, "kill_after": 26, "documents": 120, "blocking_ms": 100},
    {"fsync_ms": 0, "replicas": 2, "kill_after": 100, "documents": 200, "blocking_ms": 100},
)


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

    def run_damages(self) -> Iterator[str]:
        """Damage the journals of killed runs."""
        for kind, count in list_kinds():

            def work(folder: Path, kind: str = kind, count: int = count) -> str:
                return run_damages(folder, kind, count)

            yield self.attempt(kind, work)

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

    def run_lying_servers(self) -> Iterator[str]:
        """Run with servers whose replies look like answers."""
        for protocol in PROTOCOLS:
            names = [name for name in BEHAVIOURS if name.startswith(f"{protocol}: ")]

            def work(folder: Path, names: list[str] = names) -> str:
                calls, misread = 0, []
                for number, name in enumerate(names):
                    try:
                        calls += check_behaviour(folder / str(number), name)
                    except AssertionError as error:
                        misread.append(f"{name}: {error}")
                assert not misread, "; ".join(misread)
                return f"{len(names)} | {calls} | 0 | 0"

            yield self.attempt(protocol, work)

    def run_slow_disks(self) -> Iterator[str]:
        """Kill runs on disks with slow commits."""
        for disk in SLOW_DISKS:

            def work(folder: Path, disk: dict[str, int] = disk) -> str:
                try:
                    found = kill_on_slow_disk(folder, **disk)
                except CannotDelay as error:
                    return f"not run: {error} | | | | "
                assert found.lost <= found.bound, f"{found.lost} answers were lost"
                return f"{found.in_flight} | {found.answered} | {found.stored} | {found.lost} | {found.bound}"

            name = f"{disk['fsync_ms']} ms" + (f", {disk['replicas']} replicas" if "replicas" in disk else "")
            if "blocking_ms" in disk:
                name += f" that block for {disk['blocking_ms']} ms per answer"
            yield self.attempt(name, work)


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


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report."""

    title: str
    text: str
    columns: str
    run: Callable[[Soak, int], Iterator[str]]
    """Yields the rows; gets the number of kills per scenario."""


SECTIONS = {
    "kills": Section(
        "`kill -9`",
        """\
Each run is killed at one to three points and then completed with the same command. Its documents, requests, responses,
answers, verdicts, outcomes and estimates must be identical to those of a run without kills. The model and its judge count
the *calls*. Only answers in flight at a kill are requested again, never stored ones: calls made = runs x calls needed +
in flight.""",
        "scenario | kills | runs | calls needed | calls made | in flight at a kill | stored answers lost"
        " | stored answers requested again | results | time",
        lambda soak, points: soak.run_kills(points),
    ),
    "damaged-journals": Section(
        "Damaged journals of killed runs",
        DAMAGE_TEXT,
        DAMAGE_COLUMNS,
        lambda soak, points: soak.run_damages(),
    ),
    "slow-disks": Section(
        "Slow disk",
        """\
`fsync` of the journal takes this long. The run is killed with `kill -9` while it asks, and completed on a fast disk. At most the
requests in flight and one batch of answers may be lost: 32 answers, or twice the calls in flight. Replicas that block their event loop
while they compute have one request in flight each, and one whose answer is on its way.""",
        "fsync | requests in flight | answers before the kill | stored | lost | bound | time",
        lambda soak, points: soak.run_slow_disks(),
    ),
    "lying-servers": Section(
        "Lying server",
        """\
Each behaviour is a reply that looks like an answer and is none: errors and failed finish reasons inside replies with status 200,
impossible log probabilities, broken, endless and compressed bodies, absurd delays. While the server lies, every document must be
*failed*, and neither the journal nor the cache may have an answer. When it is honest again, the same command must ask every request
once, and all scores must be right.""",
        "protocol | behaviours | requests | answers misread | requests repeated | time",
        lambda soak, points: soak.run_lying_servers(),
    ),
    "faulty-servers": Section(
        "Faulty server",
        """\
An HTTP server fails this share of the calls, in thirteen ways. The command is repeated until every question is answered.
After every pass, each stored answer is the reply of the server to that question, failed documents count as failed and are in
no mean, the cache contains no failure, no answered question is sent again, and the exit code is correct.""",
        "share | questions | passes | calls | faults | time",
        lambda soak, points: soak.run_faulty_servers(),
    ),
    "full-disks": Section(
        "Full disk",
        """\
A run on a file system of this size stops with a clear error. With more space, the same command completes it with the results
of an undisturbed run.""",
        "size | calls needed | stored when full | requested afterwards | time",
        lambda soak, points: soak.run_full_disks(),
    ),
    "sandbox-attacks": Section(
        "Sandbox attacks",
        ATTACK_TEXT,
        ATTACK_COLUMNS,
        lambda soak, points: attack_sandboxes(soak.failed),
    ),
}


def run_section(soak: Soak, section: Section, points: int) -> str:
    """Run the tests of a section and return it as Markdown."""
    begin, failed = time.monotonic(), len(soak.failed)
    rows = list(section.run(soak, points))
    failures = soak.failed[failed:]
    lines = [
        f"## {section.title}",
        "",
        section.text,
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Assay {version('assay-harness')}, Python {platform.python_version()},"
        f" {platform.system()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end; seed {soak.seed};"
        f" {time.monotonic() - begin:.0f} s;"
        f" {'**' + str(len(failures)) + ' failed checks**' if failures else 'all checks passed'}.",
        "",
        f"| {section.columns} |",
        f"|{'---|' * (section.columns.count('|') + 1)}",
        *rows,
        *(f"\n```text\n{text}\n```" for text in failures),
    ]
    return "\n".join(lines) + "\n"


def format_report(sections: Mapping[str, str], before: str) -> str:
    """Return the report: the sections that ran, and the others as they were in the report before."""
    old = {part.partition("\n")[0]: f"## {part}" for part in before.split("\n## ")[1:]}
    lines = [
        "# Soak test: injected faults",
        "",
        "`make soak` (`tests/flows/soak.py`) generates this page; `--only` replaces single sections. CI runs a shorter version of the",
        "same tests.",
        "",
    ]
    known = [sections.get(name) or old.pop(section.title, "") for name, section in SECTIONS.items()]
    titles = {section.title for section in SECTIONS.values()}
    others = [text for title, text in old.items() if title not in titles and title != "Failed checks"]
    return "\n".join(lines) + "\n" + "\n".join(text.rstrip() + "\n" for text in [*known, *others] if text)


def main() -> int:
    """Run the fault tests and write the report; return 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=300, help="total number of kills")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections to run: " + ", ".join(SECTIONS))
    parser.add_argument(
        "--report", type=Path, default=None, help="file for the report (default: standard output)"
    )
    given = parser.parse_args()
    soak = Soak(given.seed)
    points = -(-given.points // len(SCENARIOS))
    sections = {name: run_section(soak, SECTIONS[name], points) for name in given.only.split(",")}
    before = given.report.read_text("utf-8") if given.report is not None and given.report.exists() else ""
    page = format_report(sections, before)
    if given.report is None:
        print(page)
    else:
        given.report.write_text(page, "utf-8")
    for text in soak.failed:
        print(text, file=sys.stderr)
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
