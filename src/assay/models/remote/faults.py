"""What went wrong with a call: what it is called, whether it can heal, how long the server wants to be left alone."""

from __future__ import annotations

import email.utils
import json
import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assay.core.responses import Failure
from assay.models.remote.connection import Reply

__all__ = ["BUSY", "BadReply", "Fault", "NotAnswered", "Patience", "fault_of", "wait_of"]

BUSY = (429, 503, 529)
"""What a server says that has too much to do."""

_HEALING = {
    408: "timeout",
    409: "server error",
    423: "server error",
    425: "server error",
    429: "rate limit",
    529: "server error",
}
_FINAL = {
    400: "bad request",
    401: "not allowed",
    402: "no credit",
    403: "not allowed",
    404: "not found",
    405: "not found",
    413: "too large",
    414: "too large",
    415: "bad request",
    422: "bad request",
    501: "not found",
}
_NO_CREDIT = (
    "insufficient_quota", "billing_hard_limit_reached", "insufficient_credits", "credit balance", "billing_error",
    "requestsperday", "tokensperday",
)  # fmt: skip
_TOO_LONG = ("context_length_exceeded", "maximum context length", "exceed_context_size", "too many tokens")
_GOOGLE = re.compile(r'"(?:reason|quotaId)":\s*"([^"]+)"')
_RETRY_INFO = re.compile(rb'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
"""How Google says it: in the body."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHOWN = 300


class BadReply(ValueError):
    """A reply that is whole and no answer: half of a JSON text, no choices, an answer of another shape. Can heal."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One call that came to nothing."""

    kind: str
    message: str
    heals: bool
    """Whether it is worth another try."""

    busy: bool = False
    """Whether the server says it has too much to do."""

    late: bool = False
    """Whether it did not answer in time."""

    wait_s: float | None = None
    """How long the server wants to be left alone, where it says so."""

    status: int = 0
    code: str = ""
    """What the server calls the error, beside its message."""


class NotAnswered(Exception):
    """No answer after every try that made sense."""

    def __init__(self, fault: Fault, attempts: int) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.attempts = attempts

    def failure(self, request_id: str) -> Failure:
        """The same, as what became of a request."""
        return Failure(
            request_id=request_id, kind=self.fault.kind, message=self.fault.message, attempts=self.attempts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a call is tried."""

    retries: int = 8
    """Tries after the first."""

    timeout_s: float = 300.0
    """One try."""

    total_s: float = 1800.0
    """All tries of a call, and the waits between them."""

    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0

    def pause(self, failed: int, fault: Fault, generator: random.Random) -> float:
        """Seconds before the next try, after so many failed ones: doubling, with jitter, never less than the server asks."""
        doubled = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (failed - 1))
        jittered = doubled * generator.uniform(0.5, 1.0)
        return jittered if fault.wait_s is None else max(fault.wait_s + jittered * 0.1, jittered * 0.1)


def fault_of(reply: Reply) -> Fault | None:
    """What is wrong with a reply by its status; None for one that should hold an answer."""
    status = reply.status
    if 200 <= status < 300:
        return None
    said, code = _said(reply)
    message = f"{status}: {said}" if said else str(status)
    low = f"{code} {said}".lower()
    if status in (400, 402, 429) and any(word in low for word in _NO_CREDIT):
        return Fault("no credit", message, heals=False, status=status, code=code)
    if status == 400 and "api_key_invalid" in low:  # what others say with 401
        return Fault("not allowed", message, heals=False, status=401, code=code)
    if status in _FINAL or 300 <= status < 400:
        kind = _FINAL.get(status, "not found")
        if kind == "bad request" and any(word in low for word in _TOO_LONG):
            kind = "too long"
        return Fault(kind, message, heals=False, status=status, code=code)
    busy = status in BUSY
    kind = _HEALING.get(status, "server error" if status >= 500 else "bad request")
    heals = status in _HEALING or status >= 500
    wait_s = wait_of(reply.headers)
    if wait_s is None and (told := _RETRY_INFO.search(reply.body)):
        wait_s = float(told[1])
    return Fault(kind, message, heals=heals, busy=busy, wait_s=wait_s, status=status, code=code)


def wait_of(headers: Mapping[str, str]) -> float | None:
    """How long the server wants to be left alone: `Retry-After`, else the reset of a rate limit that is used up.

    >>> wait_of({"retry-after": "3"}), wait_of({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2s"})
    (3.0, 62.0)
    """
    if given := headers.get("retry-after-ms"):
        return _seconds(f"{given}ms")
    if given := headers.get("retry-after"):
        return _seconds(given)
    resets = [
        headers.get(f"x-ratelimit-reset-{what}", "")
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}") == "0"
    ] + [
        headers.get(f"anthropic-ratelimit-{what}-reset", "")
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
        if headers.get(f"anthropic-ratelimit-{what}-remaining") == "0"
    ]
    return max((wait for reset in resets if (wait := _seconds(reset)) is not None), default=None)


def _seconds(text: str) -> float | None:
    """`3`, `1m2s`, `250ms`, or a date."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    with suppress(ValueError):
        return max(0.0, datetime.fromisoformat(text).timestamp() - time.time())
    if found := _DURATION.findall(text):
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - time.time())


def _said(reply: Reply) -> tuple[str, str]:
    """The server's own words, short, and the code it gives the error."""
    text = reply.body.decode("utf-8", "replace")
    try:
        error: Any = json.loads(text)
    except ValueError:
        return _short(re.sub(r"<[^>]*>", " ", text)), ""
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, Mapping):
        error = error.get("error", error)
    if isinstance(error, Mapping):
        details = error.get("details")
        more = _GOOGLE.findall(text) if isinstance(details, list) else ()
        code = " ".join([str(error.get("code", "")), str(error.get("type", "")), *more])
        said = error.get("message") or error.get("detail") or error
        return _short(said if isinstance(said, str) else json.dumps(said)), code
    return _short(str(error)), ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
