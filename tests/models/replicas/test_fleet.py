"""Windows to replicas, with replicas in this process: who is asked what, and what becomes of it when one dies."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from assay.core.errors import AssayError, BadOption
from assay.core.messages import Prompt
from assay.core.requests import Generate, Likelihood, Request, Settings
from assay.core.responses import Failure, Outcome, Response
from assay.models.replicas.fleet import Fleet, ReplicaDied, Sizes
from assay.models.replicas.portions import Asked, Portion, cut


def request(number: int) -> Request:
    return Generate(
        task="t", document=number, prompt=Prompt.of_text(f"question {number}"), settings=Settings({})
    )


def requests(count: int) -> list[Request]:
    return [request(number) for number in range(count)]


@dataclass
class Crew:
    """Hires copies that answer one request per turn of the loop; `poison` ends whoever reads it."""

    poison: frozenset[int] = frozenset()
    fail_after: int = 10**9
    """A copy breaks as a whole when it has answered so many."""

    node_dies_after: int = 10**9
    slow: float = 0.0
    each_s: float | None = None
    """What a copy says that each request took; without it, what it took."""

    at_once: int = 1
    openings: list[Callable[[], None]] = field(default_factory=list)
    asked: Counter[int] = field(default_factory=Counter)
    portions: list[tuple[int, list[int]]] = field(default_factory=list)
    hired: int = 0
    released: int = 0

    async def hire(self) -> Copy:
        self.hired += 1
        if self.openings:
            self.openings.pop(0)()
        return Copy(self, self.hired)


class Copy:
    def __init__(self, crew: Crew, number: int) -> None:
        self.crew, self.number, self.dead, self.answered = crew, number, False, 0
        self.turn = asyncio.Semaphore(crew.at_once)
        self.busy_s = 0.0

    async def answer(self, portion: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        self.crew.portions.append((self.number, [one.document for one in portion]))
        async with self.turn:
            begin = time.monotonic()
            async for outcomes in self._answer(portion):
                each_s = self.crew.each_s
                self.busy_s = time.monotonic() - begin if each_s is None else each_s * len(portion)
                yield outcomes

    async def _answer(self, portion: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        crew = self.crew
        for one in portion:
            await asyncio.sleep(crew.slow)
            if self.dead:
                raise ReplicaDied("gone")
            crew.asked[one.document] += 1
            if one.document in crew.poison:
                self.dead = True
                raise ReplicaDied("it read something bad")
            self.answered += 1
            if self.answered == crew.node_dies_after:
                self.dead = True
                raise ReplicaDied("its machine is gone", by_itself=False)
            if self.answered == crew.fail_after:
                raise RuntimeError("out of luck")
            yield [Response(request_id=one.id, value=str(one.document))]

    async def release(self) -> None:
        self.crew.released += 1


def run(crew: Crew, windows: list[list[Request]], **sizes: int) -> list[list[Outcome] | BaseException]:
    crew.at_once = sizes.get("at_once", 1)

    async def work() -> list[list[Outcome] | BaseException]:
        fleet = Fleet(crew.hire, Sizes(**{"replicas": 2, "window": 8, "at_once": 1, **sizes}))
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
@pytest.mark.parametrize("at_once", [1, 2])
def test_every_request_is_answered_once_by_somebody(replicas: int, at_once: int) -> None:
    crew = Crew()
    windows = [requests(50)[at : at + 8] for at in range(0, 50, 8)]
    found = run(crew, windows, replicas=replicas, at_once=at_once)
    assert values(found) == Counter(str(number) for number in range(50))
    assert crew.asked == Counter(range(50))
    assert crew.released == crew.hired == replicas


def test_whole_windows_go_out_while_there_are_more_than_fit() -> None:
    crew = Crew(slow=0.001)
    windows = [requests(128)[at : at + 8] for at in range(0, 128, 8)]
    run(crew, windows)
    early = [len(portion) for _, portion in crew.portions[:6]]
    assert early == [8] * 6


@pytest.mark.parametrize(("each_s", "most"), [(0.001, 32), (0.02, 8)])
def test_only_a_quick_model_is_handed_more_than_it_likes_at_a_time(each_s: float, most: int) -> None:
    """The engine's windows are four of the model's here."""
    crew = Crew(each_s=each_s)
    run(crew, [requests(256)[at : at + 32] for at in range(0, 256, 32)])
    sizes = [len(portion) for _, portion in crew.portions]
    assert sizes[:2] == [8, 8] and max(sizes) == most


def test_the_last_window_is_shared_out() -> None:
    crew = Crew(slow=0.002)
    run(crew, [requests(32)], replicas=4, window=32)
    by_replica = Counter(dict.fromkeys(range(1, 5), 0))
    for number, portion in crew.portions:
        by_replica[number] += len(portion)
    assert max(by_replica.values()) <= 14 and min(by_replica.values()) >= 2, by_replica


def test_a_batch_is_not_torn_apart() -> None:
    crew = Crew()
    run(crew, [requests(32)], window=32, least=16)
    assert [len(portion) for _, portion in crew.portions] == [16, 16]


def test_the_choices_of_a_document_stay_together() -> None:
    window: list[Request] = [
        Likelihood(
            task="t", document=n, index=choice, prompt=Prompt.of_text(f"q{n}"), continuation=f" {choice}"
        )
        for n in range(4)
        for choice in range(4)
    ]
    first, rest = cut(Portion(Asked(left=1), {one.id: one for one in window}), 5)
    assert [one.document for one in first.requests.values()] == [0] * 4 + [1] * 4
    assert rest is not None and len(rest.requests) == 8


def test_a_request_that_kills_three_replicas_fails_and_takes_no_other_with_it() -> None:
    crew = Crew(poison=frozenset({21}))
    windows = [requests(64)[at : at + 32] for at in range(0, 64, 32)]
    found = run(crew, windows, window=32)
    assert values(found) == Counter({**{str(n): 1 for n in range(64) if n != 21}, "replica died": 1})
    assert crew.asked[21] == 3
    assert all(times == 1 for number, times in crew.asked.items() if number != 21)
    (failure,) = [
        one for window in found if isinstance(window, list) for one in window if isinstance(one, Failure)
    ]
    assert failure.request_id == request(21).id
    assert (
        failure.attempts == 3 and "3 replicas died" in failure.message and "something bad" in failure.message
    )
    assert crew.hired == 2 + 3


@pytest.mark.parametrize("at_once", [1, 3])
def test_two_bad_requests_cost_at_most_three_replicas_each(at_once: int) -> None:
    crew = Crew(poison=frozenset({3, 40}), slow=0.001)
    windows = [requests(96)[at : at + 16] for at in range(0, 96, 16)]
    found = run(crew, windows, window=16, at_once=at_once)
    assert values(found)["replica died"] == 2
    assert sum(values(found).values()) == 96
    assert {crew.asked[3], crew.asked[40]} <= {
        2,
        3,
    }  # one may be beside the other when that kills for the first time
    assert all(times <= 3 for times in crew.asked.values())
    assert crew.hired <= 2 + 6


def test_a_machine_that_goes_is_no_fault_of_its_requests() -> None:
    crew = Crew(node_dies_after=3)
    found = run(crew, [requests(24)], window=24)
    assert values(found) == Counter(str(number) for number in range(24))
    assert crew.hired >= 8


def test_what_a_model_raises_is_raised_when_the_rest_has_come() -> None:
    crew = Crew(fail_after=3)
    (found,) = run(crew, [requests(4)], replicas=1)
    assert isinstance(found, RuntimeError) and str(found) == "out of luck"


def test_a_model_that_cannot_be_opened_says_so() -> None:
    def fails() -> None:
        raise BadOption("no such file")

    with pytest.raises(BadOption, match="no such file"):
        run(Crew(openings=[fails, fails]), [requests(4)])


def test_a_replica_that_cannot_be_opened_leaves_the_others_at_work() -> None:
    def fails() -> None:
        raise BadOption("no such file on this machine")

    def works() -> None:
        pass

    crew = Crew(openings=[works, fails])
    assert values(run(crew, [requests(8)])) == Counter(str(number) for number in range(8))


def test_a_replica_that_always_dies_at_birth_is_given_up() -> None:
    def dies() -> None:
        raise ReplicaDied("out of memory")

    with pytest.raises(AssayError, match="died 3 times while it was opened: out of memory"):
        run(Crew(openings=[dies] * 6), [requests(4)])


def test_nobody_waits_in_vain_when_the_last_replica_cannot_be_replaced() -> None:
    def works() -> None:
        pass

    def fails() -> None:
        raise BadOption("the disk is gone")

    crew = Crew(poison=frozenset({1}), openings=[works, fails])
    (found,) = run(crew, [requests(4)], replicas=1)
    assert isinstance(found, BadOption)


def test_a_late_replica_is_used() -> None:
    async def work() -> set[int]:
        crew, gate = Crew(slow=0.001), asyncio.Event()
        hire: Callable[[], Awaitable[Copy]] = crew.hire

        async def late() -> Copy:
            copy = await hire()
            if copy.number > 1:
                await gate.wait()
            return copy

        fleet = Fleet(late, Sizes(replicas=2, window=4, at_once=1))
        await fleet.open()

        async def one(window: list[Request]) -> None:
            async for _ in fleet.answer(window):
                if crew.asked.total() > 8:
                    gate.set()

        await asyncio.gather(*(one(requests(64)[at : at + 4]) for at in range(0, 64, 4)))
        await fleet.close()
        return {number for number, _ in crew.portions}

    assert asyncio.run(asyncio.wait_for(work(), 20)) == {1, 2}
