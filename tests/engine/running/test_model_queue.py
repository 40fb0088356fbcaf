"""Tests of the model queue: it sends windows to the model, and errors fail requests, not the run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from assay.core.errors import AssayError, DatasetError, InvalidOption
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Outcome, Response
from assay.engine.running.model_queue import Backlog, UnsavedAnswerLimiter, ask
from assay.testing import ScriptedModel

T = TypeVar("T")


def generate(number: int) -> Generate:
    return Generate(task="t", document=number, prompt=Prompt.of_text(f"prompt {number}"), settings=Settings())


def run_with_timeout(work: Coroutine[Any, Any, T]) -> T:
    async def limit_time() -> T:
        async with asyncio.timeout(5):
            return await work

    return asyncio.run(limit_time())


def send_requests(model: Any, requests: Sequence[Request]) -> dict[str, Outcome]:
    """Everything `ask` hands on, by request."""
    outcomes: list[Outcome] = []

    async def work() -> None:
        backlog = Backlog(1000)
        await backlog.put(requests)
        await backlog.close()
        await ask(model, backlog, outcomes.append, UnsavedAnswerLimiter(model))

    run_with_timeout(work())
    assert len({outcome.request_id for outcome in outcomes}) == len(outcomes), "each request ends once"
    return {outcome.request_id: outcome for outcome in outcomes}


# --- the backlog ---------------------------------------------------------------------------------------


def test_a_full_backlog_makes_the_producer_wait() -> None:
    async def work() -> list[int]:
        backlog, put = Backlog(4), []

        async def produce() -> None:
            for number in range(10):
                await backlog.put([generate(2 * number), generate(2 * number + 1)])
                put.append(number)
            await backlog.close()

        producing = asyncio.create_task(produce())
        await asyncio.sleep(0.01)
        held = [len(put)]
        while window := await backlog.take(2):
            assert len(window) == 2
            await asyncio.sleep(0)
        await producing
        return [*held, len(put)]

    assert run_with_timeout(work()) == [2, 10]


def test_windows_are_filled_if_possible() -> None:
    async def work() -> list[int]:
        backlog = Backlog(100)
        taking = asyncio.create_task(backlog.take(4))
        for number in range(5):
            await backlog.put([generate(number)])
            await asyncio.sleep(0)
        first = await taking
        await backlog.close()
        return [len(first), len(await backlog.take(4)), len(await backlog.take(4))]

    assert run_with_timeout(work()) == [4, 1, 0]


def test_a_window_larger_than_the_backlog_does_not_wait_forever() -> None:
    async def work() -> int:
        backlog = Backlog(3)
        await backlog.put([generate(number) for number in range(3)])
        return len(await backlog.take(64))

    assert run_with_timeout(work()) == 3


def test_peek_waits_for_the_first_request_or_the_end() -> None:
    async def work(*requests: Request) -> bool:
        backlog = Backlog(10)
        peeking = asyncio.create_task(backlog.peek())
        await asyncio.sleep(0)
        assert not peeking.done()
        if requests:
            await backlog.put(requests)
        else:
            await backlog.close()
        return await peeking

    assert run_with_timeout(work(generate(0))) is True
    assert run_with_timeout(work()) is False


# --- asking --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "in_flight"), [(1, 1), (4, 1), (1, 8), (3, 3), (100, 2)])
def test_every_request_is_sent_once_in_windows_of_the_models_size(window: int, in_flight: int) -> None:
    class Counting(ScriptedModel):
        open_now = most = largest = 0

        async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
            self.open_now += 1
            self.most, self.largest = max(self.most, self.open_now), max(self.largest, len(window))
            await asyncio.sleep(0.001)
            async for outcome in super().answer(window):
                yield outcome
            self.open_now -= 1

    model = Counting(window=window, in_flight=in_flight)
    requests = [generate(number) for number in range(20)]
    outcomes = send_requests(model, requests)
    assert set(outcomes) == {request.id for request in requests}
    assert len(model.asked) == 20
    assert model.most <= in_flight
    assert model.largest <= window
    if in_flight == 8:
        assert model.most == 8


class OddModel(ScriptedModel):
    """Answers a window as a function of it says."""

    def __init__(self, outcomes: Callable[[Sequence[Request]], Any], **details: Any) -> None:
        super().__init__(**details)
        self._outcomes = outcomes

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for outcome in self._outcomes(window):
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome


def answer_yes(request: Request) -> Response:
    return Response(request_id=request.id, value="yes")


def test_a_failed_window_fails_its_unanswered_requests() -> None:
    model = OddModel(lambda window: [answer_yes(window[0]), RuntimeError("out of memory")], window=3)
    requests = [generate(number) for number in range(6)]
    outcomes = send_requests(model, requests)
    kinds = [type(outcomes[request.id]).__name__ for request in requests]
    assert kinds == ["Response", "Failure", "Failure"] * 2
    failure = outcomes[requests[1].id]
    assert isinstance(failure, Failure)
    assert failure.message == "RuntimeError: out of memory"


def test_three_failed_windows_in_a_row_stop_the_run() -> None:
    calls = []

    def outcomes(window: Sequence[Request]) -> list[Any]:
        calls.append(len(window))
        return [RuntimeError("out of memory")]

    with pytest.raises(BaseExceptionGroup) as caught:
        send_requests(OddModel(outcomes, window=2), [generate(number) for number in range(20)])
    (error,) = caught.value.exceptions
    assert isinstance(error, AssayError)
    assert "failed 3 times in a row: RuntimeError: out of memory" in error.what
    assert "saved" in error.hint
    assert len(calls) == 3


def test_an_answer_resets_the_count_of_failed_windows() -> None:
    calls = iter(range(100))

    def outcomes(window: Sequence[Request]) -> list[Any]:
        return [answer_yes(window[0])] if next(calls) % 3 == 2 else [RuntimeError("a hiccup")]

    results = send_requests(OddModel(outcomes, window=1), [generate(number) for number in range(9)])
    assert sum(isinstance(outcome, Response) for outcome in results.values()) == 3


def test_a_model_can_stop_the_run_with_its_own_error() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        send_requests(OddModel(lambda window: [InvalidOption("the key is not valid")]), [generate(0)])
    assert caught.group_contains(InvalidOption, match="the key is not valid")


def test_unreadable_media_fail_only_their_request() -> None:
    requests = [generate(number) for number in range(2)]
    outcomes = send_requests(
        OddModel(lambda window: [DatasetError("the picture cannot be read")], window=1), requests
    )
    for request in requests:
        failure = outcomes[request.id]
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.message) == ("bad media", "the picture cannot be read")


def test_a_request_without_an_answer_is_a_failure() -> None:
    requests = [generate(number) for number in range(3)]
    outcomes = send_requests(OddModel(lambda window: [answer_yes(window[0])], window=3), requests)
    assert isinstance(outcomes[requests[0].id], Response)
    for request in requests[1:]:
        failure = outcomes[request.id]
        assert isinstance(failure, Failure)
        assert failure.message == "the model returned no response"


def test_unrequested_and_duplicate_answers_are_dropped() -> None:
    request = generate(0)
    stranger = Response(request_id="nobody", value="hello")
    second = Response(request_id=request.id, value="no")
    outcomes = send_requests(OddModel(lambda window: [stranger, answer_yes(window[0]), second]), [request])
    assert outcomes == {request.id: answer_yes(request)}


PROMPT = Prompt.of_text("prompt")
LIKELIHOOD = Likelihood(task="t", document=0, prompt=PROMPT, continuation=" x")
ROLLING = RollingLikelihood(task="t", document=0, prompt=PROMPT)
WRONG: list[tuple[Request, Any, str]] = [
    (LIKELIHOOD, LogProbability(math.nan), "not a number"),
    (ROLLING, LogProbability(math.nan), "not a number"),
    (LIKELIHOOD, LogProbability(math.inf), "positive: inf"),
    (ROLLING, LogProbability(math.inf), "positive: inf"),
    (LIKELIHOOD, LogProbability(0.5), "positive: 0.5"),
    (LIKELIHOOD, LogProbability(-1e308), "impossibly low: -1e+308"),
    (ROLLING, LogProbability(-1e9), "impossibly low: -1e+09"),
    (LIKELIHOOD, "yes", "unexpected value for a Likelihood request: str"),
    (ROLLING, "yes", "unexpected value for a RollingLikelihood request: str"),
    (generate(0), LogProbability(-1.0), "unexpected value for a Generate request: LogProbability"),
    (generate(0), None, "unexpected value for a Generate request: NoneType"),
    (LIKELIHOOD, -1.0, "unexpected value for a Likelihood request: float"),
]


@pytest.mark.parametrize(("request_", "value", "message"), WRONG)
def test_an_answer_of_the_wrong_kind_is_a_failure(request_: Request, value: Any, message: str) -> None:
    outcome = send_requests(ScriptedModel(lambda request: value), [request_])[request_.id]
    assert isinstance(outcome, Failure)
    assert message in outcome.message


def test_an_impossible_continuation_is_an_answer() -> None:
    value = LogProbability(-math.inf)
    outcome = send_requests(ScriptedModel(lambda request: value), [LIKELIHOOD])[LIKELIHOOD.id]
    assert outcome == Response(request_id=LIKELIHOOD.id, value=value)


@pytest.mark.parametrize("total", [-9999.0 * 2, 1e-6, 0.0, -30_000.0])
def test_a_rounding_error_or_a_clamped_probability_is_an_answer(total: float) -> None:
    value = LogProbability(total)
    outcome = send_requests(ScriptedModel(lambda request: value), [LIKELIHOOD])[LIKELIHOOD.id]
    assert outcome == Response(request_id=LIKELIHOOD.id, value=value)


def test_numpy_numbers_become_plain_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    value = LogProbability(numpy.float32(-1.5), numpy.bool_(True))
    outcome = send_requests(ScriptedModel(lambda request: value), [LIKELIHOOD])[LIKELIHOOD.id]
    assert isinstance(outcome, Response)
    assert isinstance(outcome.value, LogProbability)
    assert (type(outcome.value.total), outcome.value.total) == (float, -1.5)
    assert outcome.value.greedy is True


@pytest.mark.parametrize(
    ("said", "kept"),
    [("caf\ud83d", "caf\ufffd"), ("\udc00x", "\ufffdx"), ("fine 🐸", "fine 🐸"), ("\ud83d\udc38", "🐸")],
)
def test_lone_surrogates_are_replaced(said: str, kept: str) -> None:
    outcome = send_requests(ScriptedModel(lambda request: said), [generate(0)])[generate(0).id]
    assert isinstance(outcome, Response)
    assert outcome.value == kept


def test_each_waiting_consumer_gets_a_window() -> None:
    """No consumer keeps waiting while a full window is available."""

    async def work() -> list[list[Request]]:
        backlog = Backlog(64)
        taking = [asyncio.create_task(backlog.take(4)) for _ in range(15)]
        await asyncio.sleep(0)
        numbers = iter(range(60))
        for count in (3, 2, 15, 1, 29, 10):
            await backlog.put([generate(next(numbers)) for _ in range(count)])
        return list(await asyncio.gather(*taking))

    windows = run_with_timeout(work())
    assert sorted(request.document for window in windows for request in window) == list(range(60))
    assert all(len(window) == 4 for window in windows)
