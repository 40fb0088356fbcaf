"""A server that fails in many ways: the run completes, reports what is missing, and repeating it fills the gaps."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flows.faulty_runs import FaultyServerRun, run_until_complete
from tests.flows.faulty_server import FAULTS, FaultyServer, start_faulty_server
from tests.flows.running import CommandRunner
from tests.flows.served_model import NoAnswer, ServedModel

pytestmark = pytest.mark.server

EXPECTED = {
    "rate limit": "rate limit",
    "internal error": "server error",
    "overloaded": "server error",
    "connection reset": "connection",
    "no response": "timeout",
    "stalled body": "timeout",
    "closed midway": "connection",
    "truncated JSON": "bad reply",
    "not an object": "bad reply",
    "no choices": "bad reply",
    "no text": "model error",
    "HTML page": "bad reply",
    "empty body": "bad reply",
}
"""The failure kind of each fault."""


@pytest.fixture
def faulty_run(tmp_path: Path) -> Iterator[FaultyServerRun]:
    with start_faulty_server(0.1, seed=3) as server:
        yield FaultyServerRun(CommandRunner(tmp_path), server, documents=60)


def test_every_fault_has_a_name() -> None:
    assert EXPECTED.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_gives_the_expected_failure(fault: str) -> None:
    """No fault gives a valid answer."""
    with start_faulty_server(1.0, seed=1) as server:
        only = {fault: FAULTS[fault]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.flows.faulty_server.FAULTS", only)
            model = ServedModel(port=server.port, timeout_s=0.3)
            if fault == "no text":
                assert model._post({"prompt": "?", "repeat": 0}) == (None, "stop")
            else:
                with pytest.raises((NoAnswer, OSError, http.client.HTTPException)):
                    model._post({"prompt": "?", "repeat": 0})
        assert server.faults == {("?", 0): [fault]} and not server.given


@pytest.mark.slow
def test_a_run_with_ten_percent_failures_completes_when_repeated(tmp_path: Path) -> None:
    weathered = run_until_complete(tmp_path, share=0.1, seed=11)
    assert weathered.passes > 1
    assert len(weathered.faults) >= 5


def test_the_share_of_failures_sets_the_exit_code_and_failures_can_be_accepted(
    faulty_run: FaultyServerRun,
) -> None:
    server: FaultyServer = faulty_run.server
    first = faulty_run.run("--max_failures", "0.9")
    assert first.returncode == 0, first.stderr
    failed = faulty_run.check()
    assert 3 < failed < 30
    assert all(f"{count} {kind}" in first.stderr for kind, count in faulty_run.count_failures().items())
    for kinds in server.faults.values():
        assert EXPECTED[kinds[0]] in faulty_run.count_failures()

    server.clear_calls()
    accepted = faulty_run.run("--retry_failed", "false")
    assert accepted.returncode == 1
    assert f"{failed} of {faulty_run.questions} requests failed" in accepted.stderr
    assert not server.calls, "nobody is asked"
    assert faulty_run.check() == failed

    server.share = 0.0
    completed = faulty_run.run()
    assert completed.returncode == 0, completed.stderr
    assert server.calls.total() == failed
    assert faulty_run.check() == 0


def test_another_run_sends_only_the_requests_that_failed_in_the_first(faulty_run: FaultyServerRun) -> None:
    """The cache shares answers, but not failures."""
    server: FaultyServer = faulty_run.server
    assert faulty_run.run().returncode == 1
    failed = faulty_run.check()
    server.share = 0.0
    server.clear_calls()
    other = faulty_run.run(output="other")
    assert other.returncode == 0, other.stderr
    assert server.calls.total() == failed
    assert faulty_run.check("other") == 0
