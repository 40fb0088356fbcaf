"""Measure complete runs with servers that limit their clients: which share of the ideal rate they reach.

    python benchmarks/server_limits.py [--seconds 10] [--only busy …]

The ideal rate is the limit divided by the latency (50 ms). Each run has the requests of `--seconds` at this rate. The share is measured from 5 % of the answers to the last one. Where
the limit changes during the run, the time to recover is the time until half a second reaches 90 % of the new ideal rate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measurements import Goal, Measurement, Report, add_json_option
from remote_models import run_child

HERE = Path(__file__).parent
LATENCY_S = 0.05
WINDOW_S = 2.0
WINDOW_RUNS = 3
"""Runs with periods of two seconds are so many times longer, because 5 % of the others are a quarter of a period."""

CASES = {
    "queue, 4": ("queue", 4, "", 0.95),
    "queue, 64": ("queue", 64, "", 0.95),
    "busy, 4": ("busy", 4, "", 0.90),
    "busy, 20": ("busy", 20, "", 0.90),
    "busy, 100": ("busy", 100, "", 0.90),
    "retry_after, 20": ("retry_after", 20, "", 0.90),
    "retry_after, 100": ("retry_after", 100, "", 0.90),
    "connections, 20": ("connections", 20, "", 0.90),
    "connections, 100": ("connections", 100, "", 0.90),
    "window, 200": ("window", 200, "", 0.80),
    "busy, 20 to 60 to 15": ("busy", 20, "4:60,9:15", 0.0),
    "retry_after, 20 to 60 to 15": ("retry_after", 20, "4:60,9:15", 0.0),
}


@contextmanager
def start_server(mode: str, limit: int, changes: str) -> Iterator[str]:
    command = [sys.executable, str(HERE / "limited_server.py"), mode, "--limit", str(limit)]
    command += ["--latency_ms", str(LATENCY_S * 1000), "--changes", changes]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def find_recovery_s(answers: list[float], changed_at: float, ideal: float) -> float:
    """Return the seconds from a change until half a second has 90 % of the ideal rate and at most 115 %."""
    step = 0.0
    while step < 30:
        begin = changed_at + step
        rate = sum(begin <= one < begin + 0.5 for one in answers) / 0.5
        if 0.9 * ideal <= rate <= 1.15 * ideal:
            return step
        step += 0.1
    return float("inf")


def measure(name: str, seconds: float, report: Report) -> None:
    mode, limit, changes, least = CASES[name]
    ideal = limit / (WINDOW_S if mode == "window" else LATENCY_S)
    count = int(ideal * seconds * (WINDOW_RUNS if mode == "window" else 1))
    with start_server(mode, limit, changes) as url:
        if changes:
            count = int(20 * LATENCY_S**-1 * 4 + 60 / LATENCY_S * 5 + 15 / LATENCY_S * 5)
        done = run_child("assay", "chat", url, str(count), "0", script=HERE / "remote_models.py")
        with urllib.request.urlopen(f"{url}/statistics") as reply:
            found: dict[str, Any] = json.load(reply)
    answers = found["answers"]
    if len(answers) < count or done["scored"] != count:
        raise SystemExit(f"{name}: {len(answers)} answers, {done['scored']} scored, of {count}")
    if changes:
        for part in changes.split(","):
            after, _, new = part.partition(":")
            recovery = find_recovery_s(answers, answers[0] - LATENCY_S + float(after), int(new) / LATENCY_S)
            print(f"{name:30} recovers in {recovery:.1f} s, {found['rejected']} rejections", flush=True)
            report.add(
                Measurement(what=f"{name}, limit becomes {new}", ours=recovery, unit="s", goal=Goal(most=5))
            )
        return
    first = answers[len(answers) // 20]
    rate = (len(answers) - 1 - len(answers) // 20) / (answers[-1] - first)
    print(
        f"{name:30} {rate / ideal:.2f} of {ideal:.0f}/s, {found['rejected']} rejections for {count} answers",
        flush=True,
    )
    report.add(
        Measurement(
            what=name, ours=rate / ideal, unit="share of the ideal rate", goal=Goal(least=least), more_is_better=True, limit=1.0, limited_by="server",
            details={"rejections": found["rejected"], "answers": count},
        )
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a run at the ideal rate")
    parser.add_argument("--only", nargs="*", help="cases whose name starts with one of these")
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    for name in CASES:
        if not options.only or name.startswith(tuple(options.only)):
            measure(name, options.seconds, report)


if __name__ == "__main__":
    main()
