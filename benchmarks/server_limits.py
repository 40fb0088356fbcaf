"""Measure complete runs with servers that limit their clients: which share of the ideal rate they reach.

    python benchmarks/server_limits.py [--seconds 10] [--only busy …]

The ideal rate is the limit divided by the latency (50 ms), or by the period in which the server counts. Each run has the
requests of `--seconds` at this rate. The share is measured from 5 % of the answers to the last one; if the server counts in periods, from the
second period to the last one, because an incomplete period has no rate. The warm-up is the share of the answers
before the first half second, or the first period, that reaches 90 % of the ideal rate. Where the limit changes during the run, the time to
recover is the time until half a second, or a period, has 90 % of the new ideal rate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from measurements import Goal, Measurement, Report, add_json_option
from remote_models import run_child

HERE = Path(__file__).parent
LATENCY_S = 0.05
BIN_S = 0.5
MIN_SHARE, MAX_SHARE = 0.9, 1.15
"""Between these shares of the ideal rate, the rate has recovered."""


@dataclass(frozen=True, slots=True)
class Case:
    """A server and the goal for the share of its ideal rate."""

    mode: str
    limit: int
    least: float = 0.90
    window_s: float = 0.0
    """The period in which the server counts; 0: it limits calls at once."""

    duration: float = 1.0
    """Multiple of `--seconds`: long periods need longer runs."""

    changes: tuple[tuple[float, int], ...] = ()
    """Other limits, by the seconds from the first call."""

    ends_after_s: float = 0.0
    """The duration of a run with changes."""

    def find_ideal(self, limit: int | None = None) -> float:
        return (limit or self.limit) / (self.window_s or LATENCY_S)

    def count_requests(self, seconds: float) -> int:
        if not self.changes:
            return int(self.find_ideal() * seconds * self.duration)
        times = [0.0, *(after for after, _ in self.changes), self.ends_after_s]
        limits = [self.limit, *(limit for _, limit in self.changes)]
        steps = zip(pairwise(times), limits, strict=True)
        return int(sum(self.find_ideal(limit) * (end - begin) for (begin, end), limit in steps))


RISE_AND_FALL: dict[str, Any] = {"changes": ((4.0, 60), (9.0, 15)), "ends_after_s": 14.0}
CASES = {
    "queue, 4": Case("queue", 4, 0.95),
    "queue, 64": Case("queue", 64, 0.95),
    "busy, 4": Case("busy", 4),
    "busy, 20": Case("busy", 20),
    "busy, 100": Case("busy", 100),
    "retry_after, 20": Case("retry_after", 20),
    "retry_after, 100": Case("retry_after", 100),
    "connections, 20": Case("connections", 20),
    "connections, 100": Case("connections", 100),
    "window, 200 in 2 s": Case("window", 200, window_s=2, duration=3),
    "window, 1000 in 10 s": Case("window", 1000, window_s=10, duration=6),
    "window_retry_after, 1000 in 10 s": Case("window_retry_after", 1000, window_s=10, duration=6),
    "queue, 20 to 60 to 15": Case("queue", 20, **RISE_AND_FALL),
    "busy, 20 to 60 to 15": Case("busy", 20, **RISE_AND_FALL),
    "retry_after, 20 to 60 to 15": Case("retry_after", 20, **RISE_AND_FALL),
    "connections, 20 to 60 to 15": Case("connections", 20, **RISE_AND_FALL),
    "window, 200 to 600 to 100 in 2 s": Case(
        "window", 200, window_s=2, changes=((8.0, 600), (18.0, 100)), ends_after_s=28.0
    ),
}
TOKENS_CASE, TOKENS_PER_MINUTE, TOKENS_PER_CALL, TOKENS_MINUTES = "tokens, 60,000 a minute", 60_000, 28.5, 2.2
MOST_REFUSED_CONNECTIONS = 0.05


@contextmanager
def start_server(
    mode: str, limit: int, window_s: float, changes: tuple[tuple[float, int], ...] = ()
) -> Iterator[str]:
    command = [sys.executable, str(HERE / "limited_server.py"), mode, "--limit", str(limit)]
    command += ["--latency_ms", str(LATENCY_S * 1000), "--window_s", str(window_s)]
    command += ["--changes", ",".join(f"{after}:{changed}" for after, changed in changes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def run_assay(name: str, url: str, count: int, *tpm: str) -> dict[str, Any]:
    """Let Assay send this many requests; return the statistics of the server."""
    done = run_child("assay", "chat", url, str(count), "0", *tpm, script=HERE / "remote_models.py")
    with urllib.request.urlopen(f"{url}/statistics") as reply:
        found: dict[str, Any] = json.load(reply)
    answers = found["answers"]
    if len(answers) < count or done["scored"] != count:
        raise SystemExit(f"{name}: {len(answers)} answers, {done['scored']} scored, of {count}")
    return found


def count_answers(answers: list[float], begin: float, end: float) -> int:
    return bisect_left(answers, end) - bisect_left(answers, begin)


def find_recovery_s(answers: list[float], changed_at: float, ideal: float, bin_s: float) -> float:
    """Return the seconds from a change until a time of `bin_s` has 90 % of the ideal rate and at most 115 %."""
    step = 0.0
    while step < 30:
        begin = changed_at + step
        rate = count_answers(answers, begin, begin + bin_s) / bin_s
        if MIN_SHARE * ideal <= rate <= MAX_SHARE * ideal:
            return step
        step += 0.1
    return float("inf")


def find_warm_up(case: Case, found: dict[str, Any]) -> float:
    """Return the share of the answers before the rate first reaches 90 % of the ideal one."""
    answers, begin = found["answers"], found["answers"][0]
    if (
        case.window_s
    ):  # every period accepts all calls of its limit; they differ in how long the client waits for the next
        ready = (
            start for start, end in pairwise(found["periods"]) if end - start <= case.window_s / MIN_SHARE
        )
        return bisect_left(answers, next(ready, answers[-1])) / len(answers)
    while begin < answers[-1]:
        if count_answers(answers, begin, begin + BIN_S) >= MIN_SHARE * case.find_ideal() * BIN_S:
            break
        begin += 0.02
    return bisect_left(answers, begin) / len(answers)


def measure_changes(name: str, report: Report) -> None:
    case = CASES[name]
    with start_server(case.mode, case.limit, case.window_s, case.changes) as url:
        found = run_assay(name, url, case.count_requests(0))
    answers = found["answers"]
    for after, limit in case.changes:
        changed_at = answers[0] - LATENCY_S + after
        recovery = find_recovery_s(answers, changed_at, case.find_ideal(limit), case.window_s or BIN_S)
        print(f"{name:34} recovers in {recovery:.1f} s, {found['rejected']} rejections", flush=True)
        report.add(
            Measurement(
                what=f"{name}, limit becomes {limit}", ours=recovery, unit="s", goal=Goal(most=5),
                details={"rejections": found["rejected"], "answers": len(answers)},
            )
        )  # fmt: skip


def measure_rate(name: str, seconds: float, report: Report) -> None:
    case = CASES[name]
    count, ideal = case.count_requests(seconds), case.find_ideal()
    with start_server(case.mode, case.limit, case.window_s) as url:
        found = run_assay(name, url, count)
    answers, rejected = found["answers"], found["rejected"]
    first = len(answers) // 20
    share = overall = (len(answers) - 1 - first) / (answers[-1] - answers[first]) / ideal
    warm_up = 100 * find_warm_up(case, found)
    details: dict[str, str | float] = {"rejections": rejected, "answers": count}
    if case.window_s:
        waits = [end - start - case.window_s for start, end in pairwise(found["periods"])]
        begin, end = found["periods"][1] + LATENCY_S, found["periods"][-1] + LATENCY_S
        share = count_answers(answers, begin, end) / (end - begin) / ideal
        details["mean wait between periods"] = f"{1000 * sum(waits) / len(waits):.0f} ms"
        details["from 5 % to the last answer"] = f"{overall:.2f}"
    print(f"{name:34} {share:.2f} of {ideal:.0f}/s, warm-up {warm_up:.1f} %, {details}", flush=True)
    report.add(
        Measurement(
            what=name, ours=share, unit="share of the ideal rate", goal=Goal(least=case.least), more_is_better=True, limit=1.0,
            limited_by="server", details=details,
        )
    )  # fmt: skip
    report.add(
        Measurement(what=f"{name}, warm-up", ours=warm_up, unit="% of the requests", goal=Goal(most=5))
    )
    if case.mode == "connections":
        goal = Goal(most=MOST_REFUSED_CONNECTIONS)
        report.add(
            Measurement(what=f"{name}, refused", ours=rejected / count, unit="connections per answer", goal=goal)
        )  # fmt: skip


def measure_tokens(report: Report) -> None:
    """Measure a run with `tpm` and a service with this limit, which counts calls when they arrive and when they end."""
    count = int(TOKENS_MINUTES * TOKENS_PER_MINUTE / TOKENS_PER_CALL)
    with start_server("tokens", TOKENS_PER_MINUTE, 60) as url:
        found = run_assay(TOKENS_CASE, url, count, str(TOKENS_PER_MINUTE))
    answers = found["answers"]
    seconds = answers[-1] - answers[0]
    share = found["tokens"] / seconds * 60 / TOKENS_PER_MINUTE
    print(f"{TOKENS_CASE:34} {share:.2f} of the limit, {found['rejected']} windows exceeded", flush=True)
    report.add(
        Measurement(
            what=TOKENS_CASE, ours=share, unit="share of the limit", goal=Goal(least=0.90), more_is_better=True, limit=1.0,
            limited_by="server",
        )
    )  # fmt: skip
    what = f"{TOKENS_CASE}, windows above the limit"
    report.add(Measurement(what=what, ours=found["rejected"], unit="windows", goal=Goal(most=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a run at the ideal rate")
    parser.add_argument("--only", nargs="*", help="cases whose name starts with one of these")
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    for name in (*CASES, TOKENS_CASE):
        if options.only and not name.startswith(tuple(options.only)):
            continue
        if name == TOKENS_CASE:
            measure_tokens(report)
        elif CASES[name].changes:
            measure_changes(name, report)
        else:
            measure_rate(name, options.seconds, report)


if __name__ == "__main__":
    main()
