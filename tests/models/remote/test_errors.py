"""What heals, what does not, and how long to wait."""

from __future__ import annotations

import json
import random
import time
from email.utils import formatdate

import pytest

from assay.models.remote.errors import CallError, error_from_reply, read_retry_after
from assay.models.remote.retries import RetryPolicy
from assay.models.remote.transport.http import Reply


def parse_error(status: int, body: object = None, **headers: str) -> CallError | None:
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    return error_from_reply(
        Reply(status, {name.replace("_", "-"): text for name, text in headers.items()}, data)
    )


@pytest.mark.parametrize(
    ("status", "kind", "heals", "busy"),
    [
        (429, "rate limit", True, True),
        (500, "server error", True, False),
        (502, "server error", True, False),
        (503, "server error", True, True),
        (504, "server error", True, False),
        (408, "timeout", True, False),
        (409, "server error", True, False),
        (400, "bad request", False, False),
        (422, "bad request", False, False),
        (401, "not allowed", False, False),
        (403, "not allowed", False, False),
        (404, "not found", False, False),
        (413, "too large", False, False),
        (418, "bad request", False, False),
        (301, "not found", False, False),
    ],
)
def test_status_codes_are_classified(status: int, kind: str, heals: bool, busy: bool) -> None:
    fault = parse_error(status)
    assert fault is not None
    assert (fault.kind, fault.transient, fault.busy) == (kind, heals, busy)


def test_a_successful_status_is_no_error() -> None:
    assert parse_error(200) is None


def test_the_servers_message_is_kept() -> None:
    for body in (
        {"error": {"message": "no such thing", "code": "x"}},
        {"error": "no such thing"},
        {"detail": "no such thing"},
        b"<html><b>no such</b> thing</html>",
    ):
        fault = parse_error(400, body)
        assert fault is not None and "no such" in fault.message and "thing" in fault.message


def test_a_rate_limit_without_credit_is_permanent() -> None:
    fault = parse_error(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    assert fault is not None and (fault.kind, fault.transient) == ("no credit", False)


def test_a_too_long_prompt_has_its_own_kind() -> None:
    fault = parse_error(400, {"error": {"message": "maximum context length is 8192", "code": None}})
    assert fault is not None and fault.kind == "too long"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s"}, None),
    ],
)
def test_the_retry_delay_is_read_from_headers(headers: dict[str, str], wait: float | None) -> None:
    assert read_retry_after(headers) == wait


def test_retry_after_may_be_a_date() -> None:
    wait = read_retry_after({"retry-after": formatdate(time.time() + 20, usegmt=True)})
    assert wait is not None and 15 < wait < 21


def test_delays_grow_exponentially_and_respect_the_server() -> None:
    patience = RetryPolicy(initial_delay_s=1.0, max_delay_s=10.0)
    generator = random.Random(1)
    plain, asked = CallError("x", "", transient=True), CallError("x", "", transient=True, retry_after_s=7.0)
    for failed, most in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (9, 10.0)):
        pauses = {patience.compute_delay(failed, plain, generator) for _ in range(50)}
        assert most / 2 <= min(pauses) and max(pauses) <= most and len(pauses) > 40
        assert all(7.0 <= patience.compute_delay(failed, asked, generator) <= 8.0 for _ in range(50))
