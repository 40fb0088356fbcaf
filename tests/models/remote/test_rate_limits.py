"""Limits per minute, pauses, and learned rates."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.models.remote.asking import generate
from tests.models.remote.scripted_server import Act, ReceivedRequest, replying, start_scripted_server
from tests.models.remote.simulated_server import SimulatedServer

from assay.core.records.messages import Prompt
from assay.core.records.responses import Response
from assay.models.remote import counting_periods, rate_limits, window_limits
from assay.models.remote.completions import CompletionsModel
from assay.models.remote.concurrency import ConcurrencyLimiter
from assay.models.remote.openai import OpenAIModel
from assay.models.remote.rate_limits import RateLimit, TokenCounting, get_rate_limit
from assay.models.remote.window_limits import WindowLimit


def test_a_learned_rate_ignores_breaks_and_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    for module in (counting_periods, rate_limits, window_limits):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    limit = RateLimit()
    limit.slow_down()
    for pause_s in (1.0, 1.0, 3600.0, 1.0):
        now += pause_s
        limit.count_accepted()
    limit.slow_down()
    assert limit.learned is not None
    assert limit.learned.rate >= 0.2
    assert limit.wait_s(0) <= 5.0
    now += 61.0
    limit.count_accepted()
    assert limit.learned is None


def test_no_minute_has_more_calls_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 1000)
    rate_limit = RateLimit()
    rate_limit.set_limits(240, None)
    server.serve(ConcurrencyLimiter(100, rate_limit), 300)
    for begin in server.sent:
        assert sum(begin <= one < begin + 60 for one in server.sent) <= 240
    assert len(server.sent) > 0.95 * 240 * 5


def test_no_minute_of_the_server_has_more_calls_than_the_limit_if_connections_open_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    for module in (counting_periods, rate_limits, window_limits):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    limit = RateLimit()
    limit.set_limits(240, None)
    delays = random.Random(1)
    received: list[float] = []
    opening: list[tuple[float, float, Any]] = []
    while len(received) < 600:
        now += max(limit.wait_s(1), 0.01)
        reservation = limit.take(1)
        delay_s = 3.0 if len(received) + len(opening) < 20 else delays.uniform(0, 0.2)
        opening.append((now + delay_s, delay_s, reservation))
        for one in sorted((one for one in opening if one[0] <= now), key=itemgetter(0)):
            opening.remove(one)
            received.append(one[0])
            limit.count_delayed(one[2], one[1])
    received.sort()
    for begin in received:
        assert sum(begin <= one < begin + 60 for one in received) <= 240
    assert len(received) / now > 0.9 * 4


def test_the_smaller_rate_limit_applies() -> None:
    async def go() -> None:
        lane = RateLimit()
        lane.set_limits(6000, None)
        lane.set_limits(1200, None)
        lane.set_limits(9000, None)
        gate = ConcurrencyLimiter(100, lane, initial=100)
        began = asyncio.get_running_loop().time()
        for _ in range(26):  # twenty at once, then twenty a second
            gate.release(await gate.acquire(), "ok", 0.001)
        assert asyncio.get_running_loop().time() - began >= 0.25

    asyncio.run(go())


@dataclass(frozen=True)
class _Counted:
    """A call as a service counts it."""

    arrived_at: float
    ended_at: float
    requested: int
    used: int


def simulate_calls(
    monkeypatch: pytest.MonkeyPatch,
    tpm: int,
    counting: TokenCounting = "used",
    *,
    seconds: float,
    bound: int,
    latency_s: tuple[float, float] | Callable[[float], float],
) -> list[_Counted]:
    """Send calls in simulated time as fast as the limit allows; each uses 10 to 50 % of its bound."""
    now = 1000.0
    for module in (counting_periods, rate_limits, window_limits):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    limit = RateLimit()
    limit.set_limits(None, tpm, counting=counting, counts_at_start=counting == "requested")
    draw = random.Random(1)
    calls: list[_Counted] = []
    running: list[tuple[float, int, _Counted, Any]] = []
    while now < 1000.0 + seconds:
        wait_s = limit.wait_s(bound)
        if wait_s > 1e-6:
            now = min([now + wait_s, *(end for end, *_ in running[:1])])
        else:
            used = draw.randint(bound // 10, bound // 2)
            lasts_s = latency_s(now - 1000.0) if callable(latency_s) else draw.uniform(*latency_s)
            call = _Counted(now, now + lasts_s, bound, used)
            calls.append(call)
            heapq.heappush(running, (call.ended_at, len(calls), call, limit.take(bound)))
        while running and running[0][0] <= now:
            _, _, call, reservation = heapq.heappop(running)
            limit.settle(reservation, call.requested if limit.counting == "requested" else call.used)
    return calls


def find_fullest_window(amounts: list[tuple[float, int]], window_s: float = 60.0) -> int:
    """Return the largest sum of any window, whenever it begins."""
    amounts = sorted(amounts)
    most = total = begin = 0
    for at, amount in amounts:
        total += amount
        while amounts[begin][0] <= at - window_s:
            total -= amounts[begin][1]
            begin += 1
        most = max(most, total)
    return most


@pytest.mark.parametrize(
    ("latency_s", "least_share"), [((0.2, 2.0), 0.85), ((1.0, 12.0), 0.6)], ids=["short", "long"]
)
def test_no_minute_has_more_tokens_than_the_limit_if_a_service_counts_used_tokens(
    monkeypatch: pytest.MonkeyPatch, latency_s: tuple[float, float], least_share: float
) -> None:
    calls = simulate_calls(monkeypatch, 60_000, seconds=900, bound=2000, latency_s=latency_s)
    assert find_fullest_window([(one.arrived_at, one.used) for one in calls]) <= 60_000
    assert find_fullest_window([(one.ended_at, one.used) for one in calls]) <= 60_000
    assert sum(one.used for one in calls) > least_share * 60_000 * 15


def test_tokens_of_calls_that_end_together_count_from_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the first minute end with those of the second one."""
    calls = simulate_calls(
        monkeypatch, 60_000, seconds=120, bound=2000, latency_s=lambda at: max(58.0 - at, 0.1)
    )
    assert find_fullest_window([(one.ended_at, one.used) for one in calls]) <= 60_000
    assert sum(one.used for one in calls if one.arrived_at < 1060) > 5000


def test_no_minute_has_more_tokens_than_the_limit_if_a_service_counts_requested_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = simulate_calls(monkeypatch, 60_000, "requested", seconds=900, bound=2000, latency_s=(1.0, 12.0))
    assert find_fullest_window([(one.arrived_at, one.requested) for one in calls]) <= 60_000
    assert sum(one.requested for one in calls) > 0.95 * 60_000 * 15


def test_unused_tokens_are_returned_with_the_reply() -> None:
    limit = RateLimit()
    limit.set_limits(None, 6000)
    reservation = limit.take(5000)
    assert limit.wait_s(2000) > 45
    limit.settle(reservation, 90)
    limit.settle(reservation, 5000)  # only the first counts
    assert limit.wait_s(2000) < 1


def test_a_call_that_was_not_sent_counts_neither_as_a_call_nor_with_tokens() -> None:
    limit = RateLimit()
    limit.set_limits(1, 100)
    reservation = limit.take(100)
    assert limit.wait_s(100) > 0
    limit.cancel(reservation)
    assert limit.wait_s(100) == 0


def test_rejected_calls_used_no_tokens_unless_the_service_counts_requested_ones() -> None:
    for counting, is_free in (("used", True), ("requested", False)):
        limit = RateLimit()
        limit.set_limits(None, 1000, counting=counting)  # type: ignore[arg-type]
        limit.reject(limit.take(1000))
        assert (limit.wait_s(1000) == 0) is is_free


def test_a_call_above_the_limit_is_sent_alone_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = simulate_calls(monkeypatch, 1500, seconds=600, bound=2000, latency_s=(1.0, 2.0))
    arrivals = [one.arrived_at for one in calls]
    assert 8 <= len(calls) <= 10
    assert all(later - earlier > 60 for earlier, later in itertools.pairwise(arrivals))
    (warning,) = caplog.records
    assert "2000 tokens" in warning.message and "sent alone" in warning.message


def test_a_smaller_limit_counts_what_was_sent_before() -> None:
    limit = RateLimit()
    limit.set_limits(None, 6000)
    reservation = limit.take(1500)
    limit.set_limits(None, 2000)
    assert limit.wait_s(1000) > 0
    limit.settle(reservation, 100)
    assert limit.wait_s(1000) == 0


def test_a_pause_applies_to_all_models_of_a_server() -> None:
    async def go() -> None:
        one, other = (
            ConcurrencyLimiter(4, get_rate_limit("http://test-pause")),
            ConcurrencyLimiter(4, get_rate_limit("http://test-pause")),
        )
        free = ConcurrencyLimiter(4, get_rate_limit("http://test-elsewhere"))
        one.rate_limit.pause(0.08)
        began = asyncio.get_running_loop().time()
        assert free.rate_limit.wait_s(0) == 0
        await asyncio.gather(one.acquire(), other.acquire())
        assert asyncio.get_running_loop().time() - began >= 0.079

    asyncio.run(go())


class _CountingService:
    """A real server that counts tokens in windows of half a second and rejects calls above its limit.

    It counts a call when it arrives, with the tokens it requests or uses, or when it ends; in sliding windows, or in fixed ones.
    """

    def __init__(self, limit: int, counting: str, *, is_sliding: bool) -> None:
        self.limit = limit
        self.counting = counting
        self.is_sliding = is_sliding
        self.rejected = 0
        self.answered = 0
        self._counted: list[tuple[float, int]] = []
        self._random = random.Random(1)

    def _sum_window(self) -> int:
        now = time.monotonic()
        begin = now - WINDOW_S if self.is_sliding else now - now % WINDOW_S
        return sum(amount for at, amount in self._counted if at > begin)

    def _count(self, amount: int) -> None:
        self._counted.append((time.monotonic(), amount))

    async def answer(self, asked: ReceivedRequest) -> list[Act]:
        if asked.method == "GET":
            return replying({"data": []})
        payload = asked.json
        prompt = 7 + len(payload["messages"][0]["content"]) // 4
        output = self._random.randint(1, payload["max_tokens"])
        used, requested = prompt + output, prompt + payload["max_tokens"]
        arriving = {"requested": requested, "used": used, "used at the end": 0}[self.counting]
        if self._sum_window() + arriving > self.limit:
            self.rejected += 1
            return replying({"error": {"message": "tokens per minute"}}, status=429)
        self._count(arriving)
        await asyncio.sleep(self._random.uniform(0.0, 0.1))
        if self.counting == "used at the end":
            self._count(used)
            self.rejected += self._sum_window() > self.limit
        self.answered += 1
        choice = {"message": {"content": "yes"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        return replying({"choices": [choice], "usage": usage})


WINDOW_S = 0.5


@pytest.mark.parametrize("is_sliding", [True, False], ids=["sliding", "fixed"])
@pytest.mark.parametrize("counting", ["requested", "used", "used at the end"])
def test_a_service_that_counts_tokens_rejects_no_call(counting: str, is_sliding: bool) -> None:
    draw = random.Random(2)
    prompts = ["some words " * draw.randint(1, 40) for _ in range(24)]

    async def go() -> _CountingService:
        service = _CountingService(1000, counting, is_sliding=is_sliding)
        async with start_scripted_server(service.answer) as server:
            counts = "requested" if counting == "requested" else "used"
            model = OpenAIModel(
                model="m", base_url=server.url, max_gen_toks=64, tpm_counts=counts, probe=False, num_concurrent=64,
            )  # fmt: skip
            limit = get_rate_limit(server.url)
            limit.counting = "requested" if counting == "requested" else "used"
            limit.tokens = WindowLimit(1000, until_reply=counting != "requested", window_s=WINDOW_S)
            await model.open()
            requests = [generate(text, document=at, max_gen_toks=64) for at, text in enumerate(prompts)]
            outcomes = [one async for one in model.answer(requests)]
            await model.close()
        assert all(isinstance(one, Response) for one in outcomes)
        return service

    service = asyncio.run(go())
    assert (service.answered, service.rejected) == (len(prompts), 0)


def write_word_tokenizer(folder: Path) -> str:
    """Write a tokenizer whose tokens are words and punctuation."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    fast.save_pretrained(folder)
    return str(folder)


PROMPT = "The quick brown fox jumps over the lazy dog. " * 20


@pytest.mark.parametrize(
    ("make", "arguments", "least", "most"),
    [
        (OpenAIModel, {}, len(PROMPT) + 40, len(PROMPT) + 300),
        (OpenAIModel, {"tokenizer": "words"}, 220 + 40, 220 + 300),
        (OpenAIModel, {"extra_body": {"max_tokens": 2000}}, len(PROMPT) + 2000, len(PROMPT) + 2300),
        (CompletionsModel, {}, len(PROMPT) + 40, len(PROMPT) + 50),
        (CompletionsModel, {"tokenizer": "words"}, 200 + 40, 200 + 41),
    ],
    ids=["chat", "chat, tokenizer", "chat, longer answers", "completions", "completions, tokenizer"],
)
def test_a_call_reserves_its_largest_number_of_tokens_until_its_reply(
    tmp_path: Path,
    make: Callable[..., OpenAIModel | CompletionsModel],
    arguments: dict[str, Any],
    least: int,
    most: int,
) -> None:
    if "tokenizer" in arguments:
        arguments = {"tokenizer": write_word_tokenizer(tmp_path)}
    reserved: list[float] = []
    limit = RateLimit()

    def reply(asked: ReceivedRequest) -> list[Act]:
        if asked.method == "GET":
            return replying({"data": []})
        assert limit.tokens is not None
        reserved.append(limit.tokens.counted)
        choice = {"message": {"content": "yes"}, "text": "yes", "finish_reason": "stop"}
        return replying({"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 1}})

    async def go() -> float:
        nonlocal limit
        async with start_scripted_server(reply) as server:
            limit = get_rate_limit(server.url)
            model = make(model="m", base_url=server.url, tpm=100_000, probe=False, **arguments)
            await model.open()
            request = generate(Prompt.of_text(PROMPT), max_gen_toks=40)
            assert [type(one) async for one in model.answer([request])] == [Response]
            await model.close()
        assert limit.tokens is not None
        return limit.tokens.counted

    assert asyncio.run(go()) == 101
    assert least <= reserved[0] <= most
