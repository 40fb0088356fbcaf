"""Errors of calls: their kind, whether a retry can help, and the delay the server asks for."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assay.core.records.responses import Failure
from assay.models.remote.transport.http import Reply

__all__ = ["BUSY_STATUSES", "BadReply", "CallError", "CallFailed", "error_from_reply", "read_retry_after"]

BUSY_STATUSES = (429, 503, 529)
"""Status codes of an overloaded server."""

_TRANSIENT = {
    408: "timeout",
    409: "server error",
    423: "server error",
    425: "server error",
    429: "rate limit",
    529: "server error",
}
_PERMANENT = {
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
_GOOGLE_REASON = re.compile(r'"(?:reason|quotaId)":\s*"([^"]+)"')
_GOOGLE_RETRY_DELAY = re.compile(rb'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
"""Google puts the retry delay into the body."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_MESSAGE_CHARACTERS = 300
_MAX_PARSED_CHARACTERS = 10_000


class BadReply(ValueError):
    """A complete reply without a usable answer: truncated JSON, no choices, unexpected format. Retried."""


@dataclass(frozen=True, slots=True)
class CallError:
    """Why one attempt of a call failed."""

    kind: str
    message: str
    transient: bool
    """Whether a retry can succeed."""

    busy: bool = False
    """Whether the server is overloaded."""

    retry_after_s: float | None = None
    """Delay the server asks for; None: not specified."""

    status: int = 0
    code: str = ""
    """The server's error code."""


class CallFailed(Exception):
    """A call failed after all retries."""

    def __init__(self, cause: CallError, attempts: int) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.attempts = attempts

    def to_failure(self, request_id: str) -> Failure:
        """Return the failure of a request."""
        return Failure(
            request_id=request_id, kind=self.cause.kind, message=self.cause.message, attempts=self.attempts
        )


def error_from_reply(reply: Reply) -> CallError | None:
    """Return the error a reply's status stands for; None for a successful reply."""
    status = reply.status
    if 200 <= status < 300:
        return None
    text, code = _read_error_message(reply)
    message = f"{status}: {text}" if text else str(status)
    low = f"{code} {text}".lower()
    if status in (400, 402, 429) and any(word in low for word in _NO_CREDIT):
        return CallError("no credit", message, transient=False, status=status, code=code)
    if status == 400 and "api_key_invalid" in low:  # other services reply 401
        return CallError("not allowed", message, transient=False, status=401, code=code)
    if status in _PERMANENT or 300 <= status < 400:
        kind = _PERMANENT.get(status, "not found")
        if kind == "bad request" and any(word in low for word in _TOO_LONG):
            kind = "too long"
        return CallError(kind, message, transient=False, status=status, code=code)
    busy = status in BUSY_STATUSES
    kind = _TRANSIENT.get(status, "server error" if status >= 500 else "bad request")
    heals = status in _TRANSIENT or status >= 500
    wait_s = read_retry_after(reply.headers, reply.body)
    return CallError(
        kind, message, transient=heals, busy=busy, retry_after_s=wait_s, status=status, code=code
    )


def read_retry_after(headers: Mapping[str, str], body: bytes = b"") -> float | None:
    """Return the delay the server asks for: `Retry-After`, or the reset time of an exhausted rate limit.

    >>> read_retry_after({"retry-after": "3"}), read_retry_after({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2s"})
    (3.0, 62.0)
    """
    if given := headers.get("retry-after-ms"):
        return _parse_delay(f"{given}ms")
    if given := headers.get("retry-after"):
        return _parse_delay(given)
    resets = [
        headers.get(f"x-ratelimit-reset-{what}", "")
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}") == "0"
    ] + [
        headers.get(f"anthropic-ratelimit-{what}-reset", "")
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
        if headers.get(f"anthropic-ratelimit-{what}-remaining") == "0"
    ]
    delays = [wait for reset in resets if (wait := _parse_delay(reset)) is not None]
    if match := _GOOGLE_RETRY_DELAY.search(body):
        delays.append(float(match[1]))
    return max(delays, default=None)


def _parse_delay(text: str) -> float | None:
    """Parse `3`, `1m2s`, `250ms` or a date."""
    try:
        seconds = float(text)
        return None if math.isnan(seconds) else max(0.0, seconds)
    except ValueError:
        pass
    with suppress(ValueError, OverflowError, OSError):
        return max(0.0, datetime.fromisoformat(text).timestamp() - time.time())
    if found := _DURATION.findall(text):
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _read_error_message(reply: Reply) -> tuple[str, str]:
    """Return the server's error message, shortened, and its error code."""
    text = reply.body.decode("utf-8", "replace")
    try:
        error: Any = json.loads(text)
    except (ValueError, RecursionError):
        text = text[:_MAX_PARSED_CHARACTERS]
        return _shorten(re.sub(r"<[^>]*>", " ", text)), ""
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, Mapping):
        error = error.get("error", error)
    if isinstance(error, Mapping):
        details = error.get("details")
        more = _GOOGLE_REASON.findall(text) if isinstance(details, list) else ()
        code = " ".join([str(error.get("code", "")), str(error.get("type", "")), *more])
        message = error.get("message") or error.get("detail") or error
        return _shorten(message if isinstance(message, str) else json.dumps(message)), code
    return _shorten(str(error)), ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]}…"
