"""Calls to a server with concurrency limit, retries, timeouts and error handling.

endpoint = Endpoint(parse_address("http://localhost:8000/v1"), headers={...}, retry_policy=RetryPolicy())
outcome = await endpoint.post("/chat/completions", payload, read)
outcome.value          # the result of `read`, which raises BadReply for a reply without an answer
await endpoint.close()
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from assay.core.errors import AssayError, UserError
from assay.core.records.responses import Usage
from assay.core.secrets import redact, register_secret
from assay.models.finish_reasons import GenerationFailed
from assay.models.remote.concurrency import INITIAL_CONCURRENCY, ConcurrencyLimiter
from assay.models.remote.errors import BadReply, CallError, CallFailed, error_from_reply
from assay.models.remote.rate_limits import TokenCounting, get_rate_limit
from assay.models.remote.retries import Attempt, RetryPolicy
from assay.models.remote.token_bounds import TokenBound
from assay.models.remote.transport.address import Address
from assay.models.remote.transport.http import (
    DEFAULT_MAX_BODY_BYTES,
    ConnectError,
    HttpClient,
    HttpRequest,
    ReadTimeout,
    RemoteProtocolError,
    Reply,
    ReplyTooLarge,
)

__all__ = ["CallOutcome", "Endpoint", "count_probe_posts", "read_usage"]

T = TypeVar("T")

_SECRET_HEADER_WORDS = ("authorization", "key", "token", "secret", "cookie")
_MAX_FILE_BYTES = 1024 * 2**20
"""Largest file of batch results: answers to ten thousand requests."""

_USAGE_NAMES = (
    ("prompt_tokens", "completion_tokens", ""),
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens", ""),
    ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
)
"""Token counts in the replies of OpenAI, Anthropic and Gemini: those of the input, then two of the output."""

_UNREACHABLE_LIMIT_S = 120.0
"""The run stops when the server is unreachable for this long."""


@dataclass(slots=True)
class CallOutcome(Generic[T]):
    """The result of a successful call."""

    value: T
    attempts: int
    seconds: float
    """Duration of the last attempt."""

    headers: Mapping[str, str]


class Endpoint:
    """One model's connection to a server."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str] | None = None,
        key_variable: str = "",
        retry_policy: RetryPolicy | None = None,
        num_concurrent: int = 32,
        initial_concurrency: int = INITIAL_CONCURRENCY,
        rpm: float | None = None,
        tpm: float | None = None,
        token_counting: TokenCounting = "used",
        counts_tokens_at_start: bool = False,
        verify_certificate: bool = True,
        ca_cert_path: str = "",
        client_cert_path: str = "",
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    ) -> None:
        for name, value in (headers or {}).items():
            if any(
                word in name.lower() for word in _SECRET_HEADER_WORDS
            ):  # the user may pass a key as a header
                register_secret(value.rpartition(" ")[2])
        self.address = address
        self.retry_policy = retry_policy or RetryPolicy()
        self.rate_limit = get_rate_limit(address.origin)
        self.rate_limit.set_limits(rpm, tpm, counting=token_counting, counts_at_start=counts_tokens_at_start)
        self.limiter = ConcurrencyLimiter(num_concurrent, self.rate_limit, initial=initial_concurrency)
        self.posts: Counter[str] = Counter()
        """Number of POST calls, retries included, and the tokens in their replies: calls, input_tokens, output_tokens."""

        self._max_body_bytes = max_body_bytes
        self._key_variable = key_variable
        """Environment variable of the key, for error messages."""

        self._http = HttpClient(
            address,
            headers=headers or {},
            verify_certificate=verify_certificate,
            ca_cert_path=ca_cert_path,
            client_cert_path=client_cert_path,
        )
        self._jitter = random.Random()
        self._unreachable_since = 0.0

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any] | bytes,
        read: Callable[[Any], T],
        *,
        tokens: TokenBound | None = None,
        retry_policy: RetryPolicy | None = None,
        content_type: str = "application/json",
    ) -> CallOutcome[T]:
        """Send JSON and parse the JSON reply. `tokens` is the largest number of tokens of the call, for the rate limit.

        Raises:
            CallFailed: All attempts failed.
            UserError: Authentication failed or the account has no credit, so no call can succeed.
        """
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        request = HttpRequest("POST", path, body, content_type, self._max_body_bytes)

        def count_and_read(value: Any) -> T:
            self._count_tokens(value)
            if tokens is not None:
                found.append(read_usage(value))
            return read(value)

        found: list[Usage | None] = []
        """The usage in the last reply."""

        return await self._call_with_retries(
            request, partial(_parse_json, count_and_read), retry_policy or self.retry_policy, tokens, found
        )

    def _count_tokens(self, value: Any) -> None:
        """Add the tokens of a reply, with the names of OpenAI or Anthropic."""
        usage = value.get("usage") if isinstance(value, (dict, Mapping)) else None
        if not isinstance(usage, (dict, Mapping)):
            return
        read = usage.get("prompt_tokens", usage.get("input_tokens"))
        written = usage.get("completion_tokens", usage.get("output_tokens"))
        if type(read) is int:
            self.posts["input_tokens"] += read
        if type(written) is int:
            self.posts["output_tokens"] += written

    async def get(
        self, path: str, read: Callable[[Any], T], *, retry_policy: RetryPolicy | None = None
    ) -> CallOutcome[T]:
        """Fetch and parse JSON. Raises the errors of `post`."""
        request = HttpRequest("GET", path, max_body_bytes=self._max_body_bytes)
        return await self._call_with_retries(
            request, partial(_parse_json, read), retry_policy or self.retry_policy
        )

    async def get_text(self, path: str, *, retry_policy: RetryPolicy | None = None) -> CallOutcome[str]:
        """Fetch text, such as a JSON Lines file. Raises the errors of `post`."""
        request = HttpRequest("GET", path, max_body_bytes=max(self._max_body_bytes, _MAX_FILE_BYTES))
        return await self._call_with_retries(request, _decode_text, retry_policy or self.retry_policy)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    # --- attempts -------------------------------------------------------------------

    async def _call_with_retries(
        self,
        request: HttpRequest,
        read: Callable[[Reply], T],
        retry_policy: RetryPolicy,
        tokens: TokenBound | None = None,
        found: list[Usage | None] | None = None,
    ) -> CallOutcome[T]:
        """Call until an attempt succeeds. `read` appends the usage in a reply to `found`."""
        reserved = 0 if tokens is None or self.rate_limit.tokens is None else tokens.total
        began = time.monotonic()
        failed = 0
        last: CallError | None = None
        while True:
            elapsed_s = time.monotonic() - began if failed else 0.0
            left_s = max(retry_policy.total_timeout_s - elapsed_s, 0.05)
            timeout_s = min(retry_policy.timeout_s, left_s)
            self.posts["calls"] += request.method == "POST"
            attempt = Attempt(
                self.limiter, self._http, request, timeout_s, reserved, retry_policy.max_retry_wait_s
            )
            if last is None:
                outcome = await self._await_attempt(attempt, read)
            else:  # a retry can wait for a pause of the server, which counts; the queue before the first attempt does not
                try:
                    async with asyncio.timeout(left_s):
                        outcome = await self._await_attempt(attempt, read)
                except TimeoutError:
                    raise CallFailed(last, failed) from None
            if attempt.reservation is not None:
                usage = found.pop() if found else None
                attempt.settle(None if tokens is None else tokens.count(usage, self.rate_limit.counting))
            if not isinstance(outcome, CallError):
                self._unreachable_since = 0.0
                value, headers = outcome
                return CallOutcome(value, failed + 1, attempt.seconds, headers)
            failed += 1
            last = replace(outcome, message=redact(outcome.message))
            await self._wait_or_raise(last, failed, retry_policy, began)

    async def _await_attempt(
        self, attempt: Attempt, read: Callable[[Reply], T]
    ) -> tuple[T, Mapping[str, str]] | CallError:
        """Await one attempt; return the parsed reply with its headers, or the error."""
        try:
            reply = await attempt.reply
            failure = error_from_reply(reply)
            return (read(reply), reply.headers) if failure is None else failure
        except asyncio.CancelledError:
            attempt.cancel()
            raise
        except ReadTimeout as error:
            return CallError("timeout", str(error), transient=True)
        except ReplyTooLarge as error:
            return CallError("bad reply", str(error), transient=True)
        except RemoteProtocolError as error:
            return CallError("connection", f"{self.address.origin}: {error}", transient=True)
        except BadReply as error:
            return CallError("bad reply", str(error), transient=True)
        except GenerationFailed as error:
            return CallError(error.kind, str(error), transient=error.transient)
        except ConnectError as error:
            self._check_unreachable(error)
            return CallError("connection", f"{self.address.origin}: {error}", transient=True)

    async def _wait_or_raise(
        self, error: CallError, failed: int, retry_policy: RetryPolicy, began: float
    ) -> None:
        """Wait before the next attempt, or raise if there is none."""
        if error.status == 401 or error.kind == "no credit":
            raise self._build_fatal_error(error)
        pause_s = retry_policy.compute_delay(failed, error, self._jitter)
        spent_s = time.monotonic() - began
        if (
            not error.transient
            or failed > retry_policy.retries
            or spent_s + pause_s > retry_policy.total_timeout_s
        ):
            raise CallFailed(error, failed)
        await asyncio.sleep(pause_s)

    def _check_unreachable(self, error: ConnectError) -> None:
        """Stop the run when the server has been unreachable for minutes, instead of failing every document."""
        now = time.monotonic()
        self._unreachable_since = self._unreachable_since or now
        if now - self._unreachable_since > _UNREACHABLE_LIMIT_S:
            raise AssayError(
                f"lost the connection to {self.address.origin}: {error}",
                hint="all answers so far are saved; repeat the command to resume",
            )

    def _build_fatal_error(self, error: CallError) -> AssayError:
        server = self.address.origin
        if error.kind == "no credit":
            return UserError(
                f"no credit left at {server}: {error.message}",
                hint="all answers so far are saved; repeat the command to resume",
            )
        name = self._key_variable or "OPENAI_API_KEY"
        return UserError(
            f"authentication failed at {server}: {error.message}",
            where="--model_args",
            hint=f"set {name}, or name another variable with api_key_env=NAME",
        )


def read_usage(value: Any) -> Usage | None:
    """Return the tokens in a reply of any service; None if it does not report them.

    >>> usage = read_usage({"usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 2}})
    >>> usage.input_tokens, usage.output_tokens
    (95, 2)
    """
    if not isinstance(value, (dict, Mapping)):
        return None
    usage = value.get("usage", value.get("usageMetadata"))
    if not isinstance(usage, (dict, Mapping)):
        return None
    for names in _USAGE_NAMES:
        if type(usage.get(names[0])) is int:
            read = sum(usage[name] for name in names[:-2] if type(usage.get(name)) is int)
            return Usage(read, sum(usage[name] for name in names[-2:] if type(usage.get(name)) is int))
    return None


def count_probe_posts(posts: Mapping[str, int]) -> dict[str, int]:
    """Return the calls and tokens of probing, with the names of the manifest.

    >>> count_probe_posts({"calls": 2, "input_tokens": 9, "output_tokens": 0})
    {'probe_calls': 2, 'probe_input_tokens': 9}
    """
    return {f"probe_{name}": count for name, count in posts.items() if count}


def _parse_json(read: Callable[[Any], T], reply: Reply) -> T:
    """Parse a JSON reply with `read`.

    Raises:
        BadReply: The reply is not JSON, or contains no answer.
    """
    text = _decode_text(reply)
    kind = reply.content_type
    if kind and not kind.endswith("json"):
        raise BadReply(f"unexpected response format: {kind} instead of JSON: {text[:80]!r}")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadReply(f"invalid JSON in the response: {error}") from None
    except RecursionError:
        raise BadReply("invalid JSON in the response: nested too deeply") from None
    try:
        return read(value)
    except BadReply:
        raise
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise BadReply(f"unexpected response format: {type(error).__name__}: {error}") from None


def _decode_text(reply: Reply) -> str:
    try:
        return reply.body.decode()
    except UnicodeDecodeError:
        raise BadReply("the response is not valid UTF-8") from None
