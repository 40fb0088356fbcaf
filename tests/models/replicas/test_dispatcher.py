"""Dispatching to replicas in this process: batch sizes, deaths and retries."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from assay.core.errors import AssayError, InvalidOption
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import Failure, Outcome, Response
from assay.models.replicas.dispatcher import DispatchLimits, ReplicaDied, ReplicaDispatcher
from assay.models.replicas.request_batches import PendingWindow, RequestBatch, split_batch


def request(number: int) -> Request:
    return Generate(
        task="t", document=number, prompt=Prompt.of_text(f"question {number}"), settings=Settings({})
    )


def requests(count: int) -> list[Request]:
    return [request(number) for number in range(count)]


@dataclass
class ReplicaFactory:
    """Starts replicas that answer one request per iteration of the loop; a request in `poison` kills its replica."""

    poison: frozenset[int] = frozenset()
    fail_after: int = 10**9
    """A replica raises after this many answers."""

    node_dies_after: int = 10**9
    slow: float = 0.0
    each_s: float | None = None
    """Reported time per request; None: the measured time."""

    concurrency: int = 1
    openings: list[Callable[[], None]] = field(default_factory=list)
    asked: Counter[int] = field(default_factory=Counter)
    batches: list[tuple[int, list[int]]] = field(default_factory=list)
    started: int = 0
    released: int = 0

    async def start(self) -> FakeReplica:
        self.started += 1
        if self.openings:
            self.openings.pop(0)()
        return FakeReplica(self, self.started)


class FakeReplica:
    def __init__(self, factory: ReplicaFactory, number: int) -> None:
        self.factory, self.number, self.dead, self.answered = factory, number, False, 0
        self.turn = asyncio.Semaphore(factory.concurrency)
        self.busy_s = 0.0

    async def answer(self, batch: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        self.factory.batches.append((self.number, [one.document for one in batch]))
        async with self.turn:
            begin = time.monotonic()
            async for outcomes in self._answer(batch):
                each_s = self.factory.each_s
                self.busy_s = time.monotonic() - begin if each_s is None else each_s * len(batch)
                yield outcomes

    async def _answer(self, batch: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        factory = self.factory
        for one in batch:
            await asyncio.sleep(factory.slow)
            if self.dead:
                raise ReplicaDied("gone")
            factory.asked[one.document] += 1
            if one.document in factory.poison:
                self.dead = True
                raise ReplicaDied("it read something bad")
            self.answered += 1
            if self.answered == factory.node_dies_after:
                self.dead = True
                raise ReplicaDied("its machine is gone", process_failed=False)
            if self.answered == factory.fail_after:
                raise RuntimeError("out of luck")
            yield [Response(request_id=one.id, value=str(one.document))]

    async def release(self) -> None:
        self.factory.released += 1


def run(
    factory: ReplicaFactory, windows: list[list[Request]], **sizes: int
) -> list[list[Outcome] | BaseException]:
    factory.concurrency = sizes.get("concurrency", 1)

    async def work() -> list[list[Outcome] | BaseException]:
        fleet = ReplicaDispatcher(
            factory.start, DispatchLimits(**{"replicas": 2, "window": 8, "concurrency": 1, **sizes})
        )
        await fleet.open()

        async def one(window: list[Request]) -> list[Outcome]:
            return [outcome async for outcome in fleet.answer(window)]

        try:
            return await asyncio.gather(*map(one, windows), return_exceptions=True)
        finally:
            await fleet.close()

    return asyncio.run(asyncio.wait_for(work(), 20))


def values(found: list[list[Outcome] | BaseException]) -> Counter[str]:
    assert all(isinstance(one, list) for one in found), found
    return Counter(
        outcome.value if isinstance(outcome, Response) else outcome.kind  # type: ignore[misc]
        for window in found
        if isinstance(window, list)
        for outcome in window
    )


@pytest.mark.parametrize("replicas", [1, 2, 3, 9])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_every_request_is_answered_once(replicas: int, concurrency: int) -> None:
    factory = ReplicaFactory()
    windows = [requests(50)[at : at + 8] for at in range(0, 50, 8)]
    found = run(factory, windows, replicas=replicas, concurrency=concurrency)
    assert values(found) == Counter(str(number) for number in range(50))
    assert factory.asked == Counter(range(50))
    assert factory.released == factory.started == replicas


def test_whole_windows_are_sent_while_more_follow() -> None:
    factory = ReplicaFactory(slow=0.001)
    windows = [requests(128)[at : at + 8] for at in range(0, 128, 8)]
    run(factory, windows)
    early = [len(batch) for _, batch in factory.batches[:6]]
    assert early == [8] * 6


@pytest.mark.parametrize(("each_s", "most"), [(0.001, 32), (0.02, 8)])
def test_only_a_fast_model_gets_batches_larger_than_its_window(each_s: float, most: int) -> None:
    """The engine's windows are four of the model's here."""
    factory = ReplicaFactory(each_s=each_s)
    run(factory, [requests(256)[at : at + 32] for at in range(0, 256, 32)])
    sizes = [len(batch) for _, batch in factory.batches]
    assert sizes[:2] == [8, 8] and max(sizes) == most


def test_the_last_window_is_split() -> None:
    factory = ReplicaFactory(slow=0.002)
    run(factory, [requests(32)], replicas=4, window=32)
    by_replica = Counter(dict.fromkeys(range(1, 5), 0))
    for number, batch in factory.batches:
        by_replica[number] += len(batch)
    assert max(by_replica.values()) <= 14 and min(by_replica.values()) >= 2, by_replica


def test_batches_are_not_smaller_than_the_batch_size() -> None:
    factory = ReplicaFactory()
    run(factory, [requests(32)], window=32, min_batch=16)
    assert [len(batch) for _, batch in factory.batches] == [16, 16]


def test_the_choices_of_a_document_stay_together() -> None:
    window: list[Request] = [
        Likelihood(
            task="t", document=n, index=choice, prompt=Prompt.of_text(f"q{n}"), continuation=f" {choice}"
        )
        for n in range(4)
        for choice in range(4)
    ]
    first, rest = split_batch(RequestBatch(PendingWindow(open_batches=1), {one.id: one for one in window}), 5)
    assert [one.document for one in first.requests.values()] == [0] * 4 + [1] * 4
    assert rest is not None and len(rest.requests) == 8


def test_a_request_that_kills_three_replicas_fails_alone() -> None:
    factory = ReplicaFactory(poison=frozenset({21}))
    windows = [requests(64)[at : at + 32] for at in range(0, 64, 32)]
    found = run(factory, windows, window=32)
    assert values(found) == Counter({**{str(n): 1 for n in range(64) if n != 21}, "replica died": 1})
    assert factory.asked[21] == 3
    assert all(times == 1 for number, times in factory.asked.items() if number != 21)
    (failure,) = [
        one for window in found if isinstance(window, list) for one in window if isinstance(one, Failure)
    ]
    assert failure.request_id == request(21).id
    assert (
        failure.attempts == 3 and "3 replicas died" in failure.message and "something bad" in failure.message
    )
    assert factory.started == 2 + 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_two_bad_requests_cost_at_most_three_replicas_each(concurrency: int) -> None:
    factory = ReplicaFactory(poison=frozenset({3, 40}), slow=0.001)
    windows = [requests(96)[at : at + 16] for at in range(0, 96, 16)]
    found = run(factory, windows, window=16, concurrency=concurrency)
    assert values(found)["replica died"] == 2
    assert sum(values(found).values()) == 96
    assert {factory.asked[3], factory.asked[40]} <= {
        2,
        3,
    }  # one may be beside the other when that kills for the first time
    assert all(times <= 3 for times in factory.asked.values())
    assert factory.started <= 2 + 6


def test_the_loss_of_a_node_does_not_fail_requests() -> None:
    factory = ReplicaFactory(node_dies_after=3)
    found = run(factory, [requests(24)], window=24)
    assert values(found) == Counter(str(number) for number in range(24))
    assert factory.started >= 8


def test_an_exception_of_the_model_is_raised_after_all_outcomes() -> None:
    factory = ReplicaFactory(fail_after=3)
    (found,) = run(factory, [requests(4)], replicas=1)
    assert isinstance(found, RuntimeError) and str(found) == "out of luck"


def test_a_model_that_cannot_be_opened_raises() -> None:
    def fails() -> None:
        raise InvalidOption("no such file")

    with pytest.raises(InvalidOption, match="no such file"):
        run(ReplicaFactory(openings=[fails, fails]), [requests(4)])


def test_a_replica_that_cannot_be_opened_does_not_stop_the_others() -> None:
    def fails() -> None:
        raise InvalidOption("no such file on this machine")

    def works() -> None:
        pass

    factory = ReplicaFactory(openings=[works, fails])
    assert values(run(factory, [requests(8)])) == Counter(str(number) for number in range(8))


def test_a_replica_that_always_dies_while_opening_is_given_up() -> None:
    def dies() -> None:
        raise ReplicaDied("out of memory")

    with pytest.raises(AssayError, match="died 3 times while opening the model: out of memory"):
        run(ReplicaFactory(openings=[dies] * 6), [requests(4)])


def test_queued_batches_fail_if_the_last_replica_cannot_be_replaced() -> None:
    def works() -> None:
        pass

    def fails() -> None:
        raise InvalidOption("the disk is gone")

    factory = ReplicaFactory(poison=frozenset({1}), openings=[works, fails])
    (found,) = run(factory, [requests(4)], replicas=1)
    assert isinstance(found, InvalidOption)


def test_a_late_replica_is_used() -> None:
    async def work() -> set[int]:
        factory, gate = ReplicaFactory(slow=0.001), asyncio.Event()
        start: Callable[[], Awaitable[FakeReplica]] = factory.start

        async def late() -> FakeReplica:
            copy = await start()
            if copy.number > 1:
                await gate.wait()
            return copy

        fleet = ReplicaDispatcher(late, DispatchLimits(replicas=2, window=4, concurrency=1))
        await fleet.open()

        async def one(window: list[Request]) -> None:
            async for _ in fleet.answer(window):
                if factory.asked.total() > 8:
                    gate.set()

        await asyncio.gather(*(one(requests(64)[at : at + 4]) for at in range(0, 64, 4)))
        await fleet.close()
        return {number for number, _ in factory.batches}

    assert asyncio.run(asyncio.wait_for(work(), 20)) == {1, 2}


def test_a_held_dispatcher_sends_no_batches() -> None:
    async def work() -> None:
        factory = ReplicaFactory()
        dispatcher = ReplicaDispatcher(factory.start, DispatchLimits(replicas=1, window=2, concurrency=1))
        await dispatcher.open()
        try:
            dispatcher.hold(True)
            answering = asyncio.ensure_future(collect(dispatcher, requests(4)))
            await asyncio.sleep(0.02)
            assert not factory.asked
            dispatcher.hold(False)
            assert len(await asyncio.wait_for(answering, 5)) == 4
        finally:
            await dispatcher.close()

    async def collect(dispatcher: ReplicaDispatcher, window: Sequence[Request]) -> list[Outcome]:
        return [outcome async for outcome in dispatcher.answer(window)]

    asyncio.run(work())


class VirtualTimeSelector(selectors.SelectSelector):
    """Advances a clock instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time."""

    def __init__(self) -> None:
        self.clock = VirtualTimeSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_s


class TimedReplica:
    """Answers one request after the other. Messages take a while in both directions; answers are sent in groups."""

    each_s, message_s, group = 0.004, 0.05, 12

    def __init__(self) -> None:
        self.busy_s = self._free_at = 0.0

    async def answer(self, batch: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        clock = asyncio.get_running_loop().time
        begin = max(clock() + self.message_s, self._free_at)
        self._free_at = begin + self.each_s * len(batch)
        self.busy_s = self.each_s * len(batch)
        for start in range(0, len(batch), self.group):
            part = batch[start : start + self.group]
            await asyncio.sleep(begin + self.each_s * (start + len(part)) + self.message_s - clock())
            yield [Response(request_id=one.id, value="") for one in part]

    async def release(self) -> None:
        pass


def measure_seconds(count: int, replicas: int) -> float:
    """Return the time in which replicas answer `count` requests, in windows as the engine submits them."""

    async def start() -> TimedReplica:
        return TimedReplica()

    async def work() -> float:
        limits = DispatchLimits(replicas=replicas, window=64, concurrency=1)
        fleet = ReplicaDispatcher(start, limits)
        await fleet.open()
        asked = requests(count)
        windows = iter([asked[at : at + 256] for at in range(0, count, 256)])

        async def submit() -> None:
            for window in windows:
                assert len([outcome async for outcome in fleet.answer(window)]) == len(window)

        await asyncio.gather(*(submit() for _ in range(limits.in_flight)))
        await fleet.close()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work())


def test_two_replicas_are_almost_twice_as_fast_as_one() -> None:
    assert measure_seconds(1500, 1) / measure_seconds(1500, 2) > 1.9
