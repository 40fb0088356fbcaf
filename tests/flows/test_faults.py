"""A server that fails in every way there is: the run completes, says what is missing, and repeating it heals it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flows.faulty_server import FAULTS, FaultyServer, start_faulty_server
from tests.flows.running import CommandRunner
from tests.flows.served_model import NoAnswer, ServedModel
from tests.flows.storms import FaultyServerRun, run_until_complete

pytestmark = pytest.mark.server

EXPECTED = {
    "rate limit": "rate limit",
    "internal error": "server error",
    "overloaded": "server error",
    "torn connection": "connection",
    "silence": "timeout",
    "stalled body": "timeout",
    "half a body": "connection",
    "half of the JSON": "bad reply",
    "no JSON": "bad reply",
    "no choices": "bad reply",
    "no text": "model error",
    "a page instead": "bad reply",
    "nothing": "bad reply",
}
"""What each fault of the server is called in the run."""


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[FaultyServerRun]:
    with start_faulty_server(0.1, seed=3) as server:
        yield FaultyServerRun(CommandRunner(tmp_path), server, documents=60)


def test_every_fault_has_a_name() -> None:
    assert EXPECTED.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_gives_the_expected_failure(fault: str) -> None:
    """What the server does is no answer, whoever asks."""
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
    storm: FaultyServerRun,
) -> None:
    server: FaultyServer = storm.server
    first = storm.run("--max_failures", "0.9")
    assert first.returncode == 0, first.stderr
    failed = storm.check()
    assert 3 < failed < 30
    assert all(f"{count} {kind}" in first.stderr for kind, count in storm.count_failures().items())
    for kinds in server.faults.values():
        assert EXPECTED[kinds[0]] in storm.count_failures()

    server.clear_calls()
    as_it_is = storm.run("--retry_failed", "false")
    assert as_it_is.returncode == 1
    assert f"{failed} of {storm.questions} requests failed" in as_it_is.stderr
    assert not server.calls, "nobody is asked"
    assert storm.check() == failed

    server.share = 0.0
    healed = storm.run()
    assert healed.returncode == 0, healed.stderr
    assert server.calls.total() == failed
    assert storm.check() == 0


def test_another_run_sends_only_the_requests_that_failed_in_the_first(storm: FaultyServerRun) -> None:
    """Answers are shared through the cache, failures are not."""
    server: FaultyServer = storm.server
    assert storm.run().returncode == 1
    failed = storm.check()
    server.share = 0.0
    server.clear_calls()
    other = storm.run(output="other")
    assert other.returncode == 0, other.stderr
    assert server.calls.total() == failed
    assert storm.check("other") == 0
