"""Runs through a proxy that disturbs most calls: no answer is wrong or lost."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task
from tests.models.remote.embedded_server import serving
from tests.models.remote.fault_proxy import KINDS, POISON, SLOW_KINDS, FaultProxy, failing

import assay
from assay.models.remote.errors import CallError
from assay.models.remote.retries import RetryPolicy

pytestmark = pytest.mark.server

MODEL: dict[str, Any] = {
    "model": "embedded",
    "timeout": 0.3,  # a fifth of the calls wait for it, and the faults reduce the concurrency to one
    "retry_backoff_s": 0.001,
    "max_retries": 60,
    "num_concurrent": 16,
}


def rows(count: int) -> list[dict[str, str]]:
    return [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)]


def answers(folder: Path) -> dict[str, str]:
    """Prompt -> answer, as the journal has them."""
    query = "SELECT q.prompt, r.text FROM requests q JOIN responses r ON r.fingerprint = q.fingerprint"
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        return dict(journal.execute(query))


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all failed calls, as the client sees them: on a busy machine, calls without a fault time out, too."""
    kinds: list[str] = []
    compute_delay = RetryPolicy.compute_delay

    def record(policy: RetryPolicy, failed: int, error: CallError, jitter: random.Random) -> float:
        kinds.append(error.kind)
        return compute_delay(policy, failed, error, jitter)

    monkeypatch.setattr(RetryPolicy, "compute_delay", record)
    return kinds


def run_with_proxy(tmp_path: Path, count: int, share: float, failures: list[str]) -> FaultProxy:
    """Run with and without the proxy: all answers and scores agree, and a call is repeated only if it failed."""
    task = str(write_task(tmp_path / "tasks", "sums", rows(count)))
    options: dict[str, Any] = {"tasks": [task], "model": "openai"}
    with serving() as server:
        with failing(server.url, share=share) as proxy:
            through = assay.run(
                **options, model_args={**MODEL, "base_url": proxy.url}, output_path=str(tmp_path / "through")
            )
            seen = Counter(failures)
        straight = assay.run(
            **options, model_args={**MODEL, "base_url": server.url}, output_path=str(tmp_path / "straight")
        )
    told, own = answers(through.folder), answers(straight.folder)
    assert len(told) == count and told == own
    assert POISON not in "".join(told.values())
    assert [one.value for one in through.estimates] == [one.value for one in straight.estimates]
    assert all((one.scored, one.failed) == (count, 0) for one in through.estimates)
    for body, given in proxy.given.items():
        prompt = json.loads(body)["messages"][-1]["content"]
        if isinstance(prompt, str) and prompt in told:
            assert set(given) == {given[0]} and given[0].startswith(told[prompt])
    repeated = sum(proxy.calls.values()) - len(proxy.calls)
    assert repeated <= seen.total(), "more calls than the failures make necessary"
    fast = sum(proxy.faults[kind] for kind in ("refused", *KINDS) if kind not in SLOW_KINDS)
    assert seen.total() - seen["timeout"] <= fast, "the client rejected a reply without a fault"
    return proxy


def test_a_run_through_a_faulty_proxy_gives_the_same_results(tmp_path: Path, failures: list[str]) -> None:
    """Half of the calls fail."""
    count, share = 30, 0.06
    proxy = run_with_proxy(tmp_path, count, share, failures)
    assert sum(proxy.faults[kind] for kind in KINDS) > count / 3


@pytest.mark.slow
def test_a_run_with_four_faults_in_five_calls_gives_the_same_results(
    tmp_path: Path, failures: list[str]
) -> None:
    """Ten in a hundred of each kind."""
    count, share = 30, 0.1
    proxy = run_with_proxy(tmp_path, count, share, failures)
    assert all(proxy.faults[kind] > 5 for kind in KINDS)
