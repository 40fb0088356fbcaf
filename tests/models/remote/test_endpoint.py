"""One call with its retries, against a server that fails as the test says."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.models.remote.scripted_server import (
    Act,
    ReceivedRequest,
    ScriptedServer,
    replying,
    start_scripted_server,
)

from assay.core.errors import AssayError, UserError
from assay.core.secrets import register_secret
from assay.models.remote import endpoint as module
from assay.models.remote.endpoint import CallOutcome, Endpoint
from assay.models.remote.errors import BadReply, CallFailed
from assay.models.remote.rate_limits import find_longest_pause_s
from assay.models.remote.retries import RetryPolicy
from assay.models.remote.transport.address import parse_address

QUICK = RetryPolicy(retries=4, timeout_s=0.3, total_timeout_s=20, initial_delay_s=0.005, max_delay_s=0.02)


def read_word(value: Any) -> str:
    if not value["choices"]:
        raise BadReply("there are no choices")
    return str(value["choices"][0])


def asking(
    replies: list[list[Act]],
    use: Callable[[Endpoint, ScriptedServer], Awaitable[Any]] | None = None,
    *,
    patience: RetryPolicy = QUICK,
    key_variable: str = "",
) -> tuple[Any, ScriptedServer]:
    """Call a server that sends these replies in turn and repeats the last one; return the result or the error."""

    async def once(endpoint: Endpoint, server: ScriptedServer) -> Any:
        try:
            return await endpoint.post("/say", {"q": 1}, read_word)
        except (CallFailed, AssayError) as error:
            return error

    async def go() -> tuple[Any, ScriptedServer]:
        left = list(replies)

        def script(asked: ReceivedRequest) -> list[Act]:
            return left.pop(0) if len(left) > 1 else left[0]

        async with start_scripted_server(script) as server:
            endpoint = Endpoint(parse_address(server.url), retry_policy=patience, key_variable=key_variable)
            try:
                return await (use or once)(endpoint, server), server
            finally:
                await endpoint.close()

    return asyncio.run(go())


GOOD = replying({"choices": ["yes"]})


@pytest.mark.parametrize(
    "bad",
    [
        replying({}, 429, Retry_After="0.01"),
        replying({}, 500),
        replying({}, 503),
        [b""],
        [30.0],
        replying(b'{"choices": ["y'),
        replying({"choices": []}),
        replying({"other": 1}),
        replying({"choices": ["no"]}, Content_Type="text/html"),
        replying(b"\xff\xfe"),
        replying(b""),
    ],
    ids=["429", "500", "503", "dropped", "stall", "half", "empty", "shape", "page", "bytes", "nothing"],
)
def test_transient_errors_are_retried(bad: list[Act]) -> None:
    answered, server = asking([bad, bad, GOOD])
    assert isinstance(answered, CallOutcome), answered
    assert (answered.value, answered.attempts, len(server.asked)) == ("yes", 3, 3)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "bad request"), (403, "not allowed"), (404, "not found"), (413, "too large")]
)
def test_permanent_errors_are_not_retried(status: int, kind: str) -> None:
    error, server = asking([replying({"error": {"message": "no"}}, status), GOOD])
    assert isinstance(error, CallFailed) and len(server.asked) == 1
    failure = error.to_failure("id")
    assert (failure.kind, failure.message, failure.attempts) == (kind, f"{status}: no", 1)


def test_the_number_of_retries_is_limited() -> None:
    error, server = asking([replying({}, 500)])
    assert isinstance(error, CallFailed)
    assert error.attempts == len(server.asked) == 5


def test_the_total_time_of_all_attempts_is_limited() -> None:
    patience = RetryPolicy(
        retries=1000, timeout_s=0.05, total_timeout_s=0.3, initial_delay_s=0.01, max_delay_s=0.02
    )
    error, server = asking([[30.0]], patience=patience)
    assert isinstance(error, CallFailed) and error.cause.kind == "timeout"
    assert 2 <= len(server.asked) <= 8


def test_a_wrong_key_stops_the_run_and_names_the_variable() -> None:
    body = {"error": {"message": "Incorrect API key provided: sk-secret-of-a-test"}}
    register_secret("sk-secret-of-a-test")
    error, _ = asking([replying(body, 401)], key_variable="MY_KEY")
    assert isinstance(error, UserError) and error.exit_code == 2
    assert "MY_KEY" in error.hint and "sk-secret" not in str(error)
    error, _ = asking([replying(body, 401)])
    assert isinstance(error, UserError) and "OPENAI_API_KEY" in error.hint


def test_an_account_without_credit_stops_the_run() -> None:
    error, server = asking([replying({"error": {"code": "insufficient_quota", "message": "pay"}}, 429)])
    assert isinstance(error, UserError) and "no credit" in error.what
    assert len(server.asked) == 1


def test_retry_after_is_honoured() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> float:
        began = asyncio.get_running_loop().time()
        await endpoint.post("/say", {}, read_word)
        return asyncio.get_running_loop().time() - began

    seconds, _ = asking([replying({}, 429, Retry_After="0.2"), GOOD], use)
    assert seconds >= 0.2


def test_an_exhausted_rate_limit_pauses_calls() -> None:
    headers = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "200ms"}

    async def use(endpoint: Endpoint, server: ScriptedServer) -> float:
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            await endpoint.post("/say", {}, read_word)
        return asyncio.get_running_loop().time() - began

    seconds, _ = asking([replying({"choices": ["a"]}, 200, **headers), GOOD], use)
    assert seconds >= 0.19


def test_a_slow_call_does_not_block_others() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> list[str]:
        done: list[str] = []

        async def one(name: str) -> None:
            await endpoint.post("/say", {"name": name}, read_word)
            done.append(name)

        await asyncio.gather(*[one(str(number)) for number in range(30)])
        return done

    done, server = asking([[0.25, *GOOD], GOOD], use)
    assert len(done) == 30 and done[-1] == "0"
    assert server.most_open <= 8


def test_a_server_that_stays_unreachable_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNREACHABLE_LIMIT_S", 0.05)

    async def go() -> None:
        async with start_scripted_server(lambda asked: []) as server:
            url = server.url
        patience = RetryPolicy(retries=1000, initial_delay_s=0.01, max_delay_s=0.02)
        endpoint = Endpoint(parse_address(url), retry_policy=patience)
        try:
            with pytest.raises(AssayError, match="lost the connection"):
                await endpoint.post("/say", {}, read_word)
        finally:
            await endpoint.close()

    asyncio.run(go())


def test_a_cancelled_call_frees_its_slot() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> int:
        task = asyncio.create_task(endpoint.post("/say", {}, read_word))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return endpoint.limiter.in_flight

    active, _ = asking([[30.0]], use)
    assert active == 0


def test_the_next_call_is_sent_before_the_reply_is_parsed() -> None:
    """The slot is released when the reply arrives, before it is parsed."""
    sent_when_read: list[int] = []

    async def use(endpoint: Endpoint, server: ScriptedServer) -> int:
        def read(value: Any) -> str:
            sent_when_read.append(endpoint.limiter.in_flight)
            return read_word(value)

        await endpoint.post("/say", {}, read)  # the connection is kept
        endpoint.limiter.limit = endpoint.limiter.max_concurrency = 1
        await asyncio.gather(*[endpoint.post("/say", {"n": number}, read) for number in range(3)])
        return server.connections

    connections, server = asking([GOOD], use)
    assert sent_when_read == [0, 1, 1, 0] and len(server.asked) == 4
    assert connections == 1, "one after the other over the same connection"


def test_hundreds_of_waiting_calls_can_be_cancelled_at_once() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> tuple[int, str]:
        endpoint.limiter.limit = endpoint.limiter.max_concurrency = 1
        tasks = [asyncio.create_task(endpoint.post("/say", {}, read_word)) for _ in range(1500)]
        while not server.asked:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return endpoint.limiter.in_flight, (await endpoint.post("/say", {}, read_word)).value

    (active, said), server = asking([[30.0], GOOD], use, patience=RetryPolicy())
    assert (active, said) == (0, "yes") and len(server.asked) == 2


def test_a_call_cancelled_while_connecting_frees_its_slot() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> int:
        task = asyncio.create_task(endpoint.post("/say", {}, read_word))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.01)
        return endpoint.limiter.in_flight

    active, _ = asking([GOOD], use)
    assert active == 0


DEEP = b"[" * 200_000 + b"]" * 200_000


def test_deeply_nested_json_is_a_bad_reply_that_is_retried() -> None:
    answered, server = asking([replying(DEEP), GOOD])
    assert isinstance(answered, CallOutcome), answered
    assert (answered.attempts, len(server.asked)) == (2, 2)
    error, _ = asking([replying(DEEP)])
    assert isinstance(error, CallFailed) and error.cause.kind == "bad reply"
    assert "nested too deeply" in error.cause.message
    error, _ = asking([replying(DEEP, 400)])
    assert isinstance(error, CallFailed) and error.cause.kind == "bad request"


@pytest.mark.parametrize(
    "header", ["3600", "inf", "1e400", "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z", "99999h"]
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_long_retry_after_is_shortened(header: str, status: int) -> None:
    patience = replace(QUICK, max_retry_wait_s=0.05)
    begin = time.monotonic()
    answered, _ = asking([replying({}, status, Retry_After=header), GOOD], patience=patience)
    assert isinstance(answered, CallOutcome), answered
    assert time.monotonic() - begin < 60


def test_the_total_timeout_holds_although_the_server_asks_for_pauses() -> None:
    patience = replace(QUICK, retries=1000, timeout_s=5, total_timeout_s=1.2, max_retry_wait_s=0.4)
    begin = time.monotonic()
    error, server = asking([replying({}, 429, Retry_After="3600")], patience=patience)
    assert isinstance(error, CallFailed) and error.cause.kind == "rate limit"
    assert time.monotonic() - begin < 60
    assert 2 <= len(server.asked) <= 4


def test_a_pause_is_reported_to_the_progress_display() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> float:
        calling = asyncio.ensure_future(endpoint.post("/say", {"q": 1}, read_word))
        while not server.asked:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        pause_s = find_longest_pause_s()
        calling.cancel()
        return pause_s

    pause_s, _ = asking([replying({}, 429, Retry_After="3600")], use, patience=RetryPolicy())
    assert 200 < pause_s <= 300


ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
CHUNK = b" " * 65536


def zip_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([packer.compress(bytes(2**20)) for _ in range(size // 2**20)]) + packer.flush()


@pytest.mark.parametrize(
    "acts",
    [
        [ENDLESS, *[CHUNK] * 200],
        replying(zip_bomb(64 * 2**20), Content_Encoding="gzip"),
        [ENDLESS.replace(b"\r\n\r\n", b"\r\nContent-Length: 99999999999\r\n\r\n"), CHUNK],
    ],
    ids=["endless body", "gzip bomb", "announced"],
)
def test_a_body_that_is_too_large_is_refused_with_its_size(acts: list[Act]) -> None:
    async def go() -> CallFailed:
        async with start_scripted_server(lambda asked: acts) as server:
            endpoint = Endpoint(
                parse_address(server.url), retry_policy=replace(QUICK, retries=0), max_body_bytes=2**20
            )
            try:
                await endpoint.post("/say", {}, read_word)
            except CallFailed as error:
                return error
            finally:
                await endpoint.close()
        raise AssertionError("the reply was accepted")

    tracemalloc.start()
    try:
        error = asyncio.run(go())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.cause.kind == "bad reply" and "the limit is 1 MB" in error.cause.message
    assert peak < 20 * 2**20


def test_cancelled_calls_free_their_slots_and_do_not_lower_the_concurrency() -> None:
    async def use(endpoint: Endpoint, server: ScriptedServer) -> tuple[float, float, int]:
        before = endpoint.limiter.limit
        for pause_s in (0.0, 0.1):  # before the connection is open, and while the reply is awaited
            calls = [asyncio.create_task(endpoint.post("/say", {"q": 1}, read_word)) for _ in range(4)]
            await asyncio.sleep(pause_s)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        return before, endpoint.limiter.limit, endpoint.limiter.in_flight

    slow: list[Act] = [30.0]
    (before, after, in_flight), _ = asking([slow], use, patience=RetryPolicy())
    assert (after, in_flight) == (before, 0)
