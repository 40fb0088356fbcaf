"""Tests of run costs: prices, separate counts for judges, and the cost limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, write_task

import assay
from assay.core.errors import AssayError, BudgetExceeded, InvalidOption
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Response, Usage
from assay.engine.running.cost_ledger import (
    MESSAGE_OVERHEAD_TOKENS,
    CostAccount,
    CostLedger,
    bound_usage,
)
from assay.models.prices import Price, PriceTable, load_prices
from assay.store.journal.journal import Journal
from assay.testing import ScriptedModel


class PaidModel(ScriptedModel):
    """A model with a bill: every answer reads a thousand tokens and writes a hundred."""

    billed = "openai/gpt-4o-mini"
    batched = False

    @property
    def billed_as(self) -> str:
        return self.billed

    def choose_answer(self, request: Request) -> Any:
        usage = Usage(1000, 100, batched=self.batched)
        return Response(request_id="", value="2", finish="stop", usage=usage)


EACH = (1000 * 0.15 + 100 * 0.60) / 1e6


def run(workspace: Path, model: ScriptedModel, **options: Any) -> assay.Run:
    path = write_task(workspace / "tasks", generation_kwargs={"max_gen_toks": 100})
    return assay.run(model=model, tasks=[str(path)], no_cache=True, **options)


def test_every_response_is_priced_and_summed(workspace: Path) -> None:
    done = run(workspace, PaidModel())
    assert done.spent.cost_usd == pytest.approx(6 * EACH)
    assert (done.spent.requests, done.spent.input_tokens, done.spent.output_tokens) == (6, 6000, 600)
    assert done.spent_by_task["sums"] == done.spent
    assert done.usage["tasks"]["sums"]["cost_usd"] == pytest.approx(6 * EACH)
    assert done.usage["billing"][""]["billed_as"] == "openai/gpt-4o-mini"
    assert "6000 input tokens, 600 output tokens; $0.0013 at prices of 20" in done.table()
    assert assay.open_run(done.folder).spent == done.spent


def test_costs_are_counted_per_task(workspace: Path) -> None:
    paths = [
        write_task(workspace / "tasks", name, ROWS[:count]) for name, count in (("two", 2), ("three", 3))
    ]
    done = assay.run(model=PaidModel(), tasks=[str(path) for path in paths], no_cache=True)
    apart = {task: spent.requests for task, spent in done.spent_by_task.items()}
    assert apart == {"two": 2, "three": 3}
    assert done.spent.requests == 3  # two of them are the same questions, asked once


def test_an_unbilled_model_reports_no_costs(workspace: Path) -> None:
    class UnbilledModel(PaidModel):
        billed = ""

    done = run(workspace, UnbilledModel())
    assert done.spent.cost_usd is None
    assert "6000 input tokens, 600 output tokens" in done.table()
    assert "$" not in done.table()
    assert "cost" not in done.table()


def test_a_self_hosted_server_uses_the_price_table_of_the_user(workspace: Path) -> None:
    class GatewayModel(PaidModel):
        billed = "llm.corp.internal/model"

    assert run(workspace, GatewayModel(), output_path="free").spent.cost_usd is None
    (workspace / "mine.toml").write_text(
        'date = "2031-02-03"\n[prices]\n"llm.corp.internal/*" = { input = 1000, output = 0 }'
    )
    done = run(workspace, GatewayModel(), prices="mine.toml", output_path="paid")
    assert done.spent.cost_usd == pytest.approx(6.0)


def test_an_unknown_price_is_not_zero(workspace: Path) -> None:
    class UnknownPriceModel(PaidModel):
        billed = "openai/unheard-of"

    done = run(workspace, UnknownPriceModel())
    assert done.spent.cost_usd is None
    assert "cost unknown: no price for `openai/unheard-of`" in done.table()


def test_prices_of_the_user_take_precedence(workspace: Path) -> None:
    (workspace / "mine.toml").write_text(
        'date = "2031-02-03"\n[prices]\n"openai/gpt-4o-mini" = { input = 1000, output = 0 }'
    )
    done = run(workspace, PaidModel(), prices="mine.toml")
    assert done.spent.cost_usd == pytest.approx(6.0)
    assert "$6.00 at prices of 2031-02-03" in done.table()


def test_a_cost_reported_by_the_service_takes_precedence(workspace: Path) -> None:
    class SelfPricedModel(PaidModel):
        def choose_answer(self, request: Request) -> Any:
            return Response(request_id="", value="2", finish="stop", usage=Usage(10, 1, cost_usd=0.5))

    assert run(workspace, SelfPricedModel()).spent.cost_usd == pytest.approx(3.0)


def test_batches_cost_half(workspace: Path) -> None:
    class BatchModel(PaidModel):
        batched = True

    assert run(workspace, BatchModel()).spent.cost_usd == pytest.approx(3 * EACH)


def test_cached_responses_cost_nothing(workspace: Path) -> None:
    path = write_task(workspace / "tasks")
    first = assay.run(model=PaidModel(), tasks=[str(path)], use_cache="cache.sqlite", output_path="a")
    again = assay.run(model=PaidModel(), tasks=[str(path)], use_cache="cache.sqlite", output_path="b")
    assert first.spent.requests == 6
    assert (again.spent.requests, again.spent.cost_usd) == (0, None)


def test_a_cost_limit_stops_the_run_and_a_higher_one_resumes_it(workspace: Path) -> None:
    model = PaidModel(window=1)
    with pytest.raises(BudgetExceeded, match="--max_cost") as caught:
        run(workspace, model, max_cost=3.5 * EACH)
    assert caught.value.exit_code == 4
    asked = len(model.asked)
    assert asked == 3
    with pytest.raises(BudgetExceeded):
        run(workspace, model, max_cost=3.5 * EACH)
    assert len(model.asked) == asked
    done = run(workspace, model, max_cost=6.5 * EACH)
    assert len(model.asked) == 6
    assert done.spent.cost_usd == pytest.approx(6 * EACH)
    assert done.outcomes("sums") == {"scored": 6}


def test_a_cost_limit_that_is_not_reached_has_no_effect(workspace: Path) -> None:
    assert run(workspace, PaidModel(), max_cost=1).outcomes("sums") == {"scored": 6}


def test_requests_within_the_corrected_estimate_are_sent(workspace: Path) -> None:
    class ShortAnswerModel(PaidModel):
        def choose_answer(self, request: Request) -> Any:
            return Response(request_id="", value="2", finish="stop", usage=Usage(8, 1))

    model = ShortAnswerModel(window=64)
    done = run(workspace, model, max_cost=0.000_1)
    assert len(model.asked) == 6
    assert done.outcomes("sums") == {"scored": 6}


def test_a_window_is_truncated_at_the_cost_limit(workspace: Path) -> None:
    model = PaidModel(window=64)
    with pytest.raises(BudgetExceeded):
        run(workspace, model, max_cost=0.000_2)
    assert 1 <= len(model.asked) < 6


def test_a_limit_needs_a_price(workspace: Path) -> None:
    class UnknownPriceModel(PaidModel):
        billed = "openai/unheard-of"

    with pytest.raises(InvalidOption, match="the price of `openai/unheard-of` is unknown"):
        run(workspace, UnknownPriceModel(), max_cost=5)


def test_a_model_that_costs_nothing_has_no_limit(workspace: Path) -> None:
    assert run(workspace, ScriptedModel(), max_cost=0).outcomes("sums") == {"scored": 6}


def test_judges_are_counted_separately_within_the_same_limit(workspace: Path) -> None:
    class Judge(PaidModel):
        def choose_answer(self, request: Request) -> Any:
            return Response(request_id="", value="VERDICT: CORRECT", finish="stop", usage=Usage(2000, 100))

    path = write_task(
        workspace / "tasks",
        rows=ROWS,
        metric_list=[{"metric": "good", "judge": {"kind": "binary"}}],
    )
    judge = Judge(name="judge", window=1)
    done = assay.run(model=PaidModel(), judge=judge, tasks=[str(path)], no_cache=True, output_path="free")
    assert done.spent.cost_usd == pytest.approx(6 * EACH)
    (spent,) = done.spent_by_judge.values()
    asked = spent.requests
    assert asked >= 1
    assert spent.cost_usd == pytest.approx(asked * (2000 * 0.15 + 100 * 0.60) / 1e6)
    limited = Judge(name="judge", window=1)
    with pytest.raises(BudgetExceeded):
        assay.run(
            model=PaidModel(),
            judge=limited,
            tasks=[str(path)],
            no_cache=True,
            output_path="less",
            max_cost=6.5 * EACH,
        )
    assert len(limited.asked) < asked


class ThinkingModel(PaidModel):
    """Answers many requests at the same time; each thinks up to its budget, which the request does not show."""

    def __init__(self, tokens: int) -> None:
        super().__init__(window=1, in_flight=256)
        self.tokens = tokens
        self.most = self.now = 0

    def find_output_limit(self, request: Request) -> int:
        return 10_000

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Any]:
        self.now += len(window)
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= len(window)
        async for outcome in super().answer(window):
            yield outcome

    def choose_answer(self, request: Request) -> Any:
        return Response(request_id="", value="2", finish="stop", usage=Usage(20, self.tokens))


@pytest.mark.parametrize(("tokens", "least"), [(10_000, 16), (2_000, 80)])
def test_the_limit_holds_with_thinking_and_many_requests_in_flight(
    workspace: Path, tokens: int, least: int
) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(300)]
    path = write_task(workspace / "tasks", "sums", rows, generation_kwargs={"max_gen_toks": 10})
    model = ThinkingModel(tokens)
    with pytest.raises(BudgetExceeded):
        assay.run(model=model, tasks=[str(path)], no_cache=True, max_cost=0.1)  # 0.006 dollars each at most
    spent = len(model.asked) * (20 * 0.15 + tokens * 0.60) / 1e6
    assert spent <= 0.1 + 0.006
    assert len(model.asked) >= least
    assert model.most <= 17


def test_the_limit_holds_if_reasoning_is_not_counted_by_the_limit_and_differs(workspace: Path) -> None:
    """Answers of 200 to 6,000 tokens, although 32 are allowed; windows ask for admission at the same time."""

    class Thinker(ThinkingModel):
        def find_output_limit(self, request: Request) -> int:
            return 32

        def choose_answer(self, request: Request) -> Any:
            tokens = 200 + request.document * 2741 % 5800
            return Response(request_id="", value="2", finish="stop", usage=Usage(20, tokens))

    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(300)]
    path = write_task(workspace / "tasks", "sums", rows, generation_kwargs={"max_gen_toks": 32})
    model = Thinker(0)
    with pytest.raises(BudgetExceeded):
        assay.run(model=model, tasks=[str(path)], no_cache=True, max_cost=0.1)
    (spent,) = {
        assay.open_run(folder.parent).spent.cost_usd for folder in Path("assay-runs").rglob("journal.sqlite")
    }
    assert spent is not None and 0.08 < spent <= 0.1 + 6000 * 0.60 / 1e6


def make_account(limit_usd: float, model: ScriptedModel | None = None) -> tuple[CostLedger, CostAccount]:
    """Return an account of a model whose output costs a dollar per token."""
    ledger = CostLedger(PriceTable(({"x/y": Price(input=0, output=1e6)},)), limit_usd=limit_usd)
    return ledger, ledger.account(model or _NamedModel("x/y"))


def answer(account: CostAccount, request: Request, tokens: int) -> None:
    account.charge(Response(request_id=request.id, value="", usage=Usage(0, tokens)))


def test_the_first_request_is_sent_alone_and_then_the_highest_cost_counts() -> None:
    ledger, account = make_account(45.0)
    (requests,) = _requests(8)

    async def use() -> None:
        assert len(await account.admit(requests)) == 1
        answer(account, requests[0], 1)
        assert len(await account.admit(requests[1:])) == 4  # ten dollars each
        waiting = asyncio.ensure_future(account.admit(requests[5:]))
        await asyncio.sleep(0)
        assert not waiting.done()
        for request in requests[1:5]:
            answer(account, request, 10)
        assert await waiting == []
        assert ledger.is_exhausted and ledger.spent_usd == 41

    asyncio.run(asyncio.wait_for(use(), 5))


def test_cheap_answers_use_the_rest_of_the_budget_one_at_a_time() -> None:
    ledger, account = make_account(12.0)
    (requests,) = _requests(8)

    async def use() -> None:
        for request in requests[:5]:
            assert await account.admit([request, requests[7]]) == [request]
            answer(account, request, 1)
        assert ledger.spent_usd == 5

    asyncio.run(asyncio.wait_for(use(), 5))


def test_a_request_without_a_limit_is_sent_alone_until_one_is_answered() -> None:
    from assay.core.records.messages import Prompt
    from assay.core.records.requests import Generate, Settings

    _, account = make_account(100.0)
    requests = [
        Generate(task="t", document=n, prompt=Prompt.of_text(str(n)), settings=Settings({}))
        for n in range(40)
    ]

    async def use() -> None:
        assert len(await account.admit(requests)) == 1
        waiting = asyncio.ensure_future(account.admit(requests[1:]))
        await asyncio.sleep(0)
        assert not waiting.done()
        answer(account, requests[0], 3)
        assert len(await waiting) == 1, "one answer does not show how long others are"
        answer(account, requests[1], 3)
        for request in requests[2:20]:
            assert len(await account.admit([request])) == 1
            answer(account, request, 1)
        assert len(await account.admit(requests[20:])) == 12  # twice the highest cost so far: 76 / 6

    asyncio.run(asyncio.wait_for(use(), 5))


def test_a_server_that_ignores_its_limit_raises_the_reservations() -> None:
    ledger, account = make_account(100.0)
    (requests,) = _requests(8)

    async def use() -> None:
        assert len(await account.admit(requests)) == 1
        answer(account, requests[0], 30)  # ten were asked for
        assert len(await account.admit(requests[1:])) == 1  # 60 dollars may be needed
        answer(account, requests[1], 30)
        assert len(await account.admit(requests[2:])) == 1  # 30 dollars are left for one more, sent alone
        answer(account, requests[2], 30)
        assert await account.admit(requests[3:]) == []
        assert ledger.spent_usd == 90

    asyncio.run(asyncio.wait_for(use(), 5))


def test_reservations_are_compared_only_after_an_answer_that_costs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each comparison visits all requests in flight: one after every answer would take quadratic time."""
    ledger, account = make_account(1e6)
    (requests,) = _requests(101)
    visited = 0
    widen = CostAccount._widen_bound

    def count(self: CostAccount, computed: float | None) -> float | None:
        nonlocal visited
        visited += 1
        return widen(self, computed)

    asyncio.run(account.admit(requests))
    answer(account, requests[0], 5)
    assert len(asyncio.run(account.admit(requests[1:]))) == 100
    monkeypatch.setattr(CostAccount, "_widen_bound", count)
    for request in requests[1:50]:
        answer(account, request, 5)
    assert visited == 0
    answer(account, requests[50], 30)  # ten were asked for
    assert visited == 50
    assert min(ledger.reserved.values()) >= 60


def test_a_response_without_usage_counts_as_its_reservation() -> None:
    ledger, account = make_account(25.0)
    (requests,) = _requests(1)
    asyncio.run(account.admit(requests))
    account.charge(Response(request_id=requests[0].id, value=""))
    assert ledger.spent_usd == 10


def test_responses_without_usage_do_not_make_the_run_sequential() -> None:
    ledger, account = make_account(45.0)
    (requests,) = _requests(8)
    assert len(asyncio.run(account.admit(requests))) == 1
    account.charge(Response(request_id=requests[0].id, value=""))
    assert len(asyncio.run(account.admit(requests[1:]))) == 3  # ten dollars each
    assert ledger.spent_usd + sum(ledger.reserved.values()) == 40


def test_overspending_is_reported() -> None:
    ledger, account = make_account(25.0)
    (requests,) = _requests(2)
    asyncio.run(account.admit(requests))
    answer(account, requests[0], 40)
    assert asyncio.run(account.admit(requests[1:])) == []
    assert "$40 spent, $15 more than --max_cost 25" in str(ledger.build_error())


def test_input_is_counted_with_the_continuation() -> None:
    from assay.core.records.messages import Prompt
    from assay.core.records.requests import Likelihood

    request = Likelihood(task="t", document=0, prompt=Prompt.of_text("abc"), continuation=" é")
    assert bound_usage(request, None) == Usage(MESSAGE_OVERHEAD_TOKENS + 3 + 3, 1)


def test_tool_calls_results_and_definitions_are_counted_by_their_bytes() -> None:
    from dataclasses import replace

    from assay.core.records.messages import Message, Prompt, Text
    from assay.core.records.requests import Generate, Settings
    from assay.core.records.tools import ResponseFormat, Tool, ToolCall, ToolResult, Tools

    messages = (
        Message("user", (Text("abc"),)),
        Message("assistant", (ToolCall("now", '{"a": 1}', "id1"),)),
        Message("tool", (ToolResult("é" * 50, "id1", "now"),)),
    )
    plain = Generate(task="t", document=0, prompt=Prompt(messages, chat=True), settings=Settings({}))
    size = 4 * MESSAGE_OVERHEAD_TOKENS + 3 + (3 + 8 + 3) + (100 + 3 + 3)
    assert bound_usage(plain, 7) == Usage(size, 7)

    tools = Tools(tools=(Tool("now", "x" * 300), Tool("then", "y" * 500)))
    with_tools = bound_usage(replace(plain, tools=tools), 7).input_tokens - size
    assert 800 + 2 * MESSAGE_OVERHEAD_TOKENS < with_tools < 1200
    described = replace(plain, tools=replace(tools, syntax="json"))
    assert bound_usage(described, 7).input_tokens == size, "the prompt contains the definitions"

    schema = ResponseFormat(schema={"type": "object", "description": "z" * 400})
    with_schema = bound_usage(replace(plain, response_format=schema), 7).input_tokens - size
    assert 400 < with_schema < 600


def test_a_failure_releases_its_reserved_cost() -> None:
    prices = PriceTable(({"x/y": Price(input=0, output=1e6)},))
    ledger = CostLedger(prices, limit_usd=15.0)
    account = ledger.account(_NamedModel("x/y"))
    (requests,) = _requests(2)
    asyncio.run(account.admit(requests[:1]))
    account.charge(Failure(request_id=requests[0].id, kind="timeout", message=""))
    assert len(asyncio.run(account.admit(requests[1:]))) == 1


class _NamedModel(ScriptedModel):
    def __init__(self, billed_as: str) -> None:
        super().__init__()
        self.billed_as = billed_as


def _requests(count: int) -> tuple[list[Request]]:
    from assay.core.records.messages import Prompt
    from assay.core.records.requests import Generate, Settings

    settings = Settings({"max_gen_toks": 10})
    return (
        [
            Generate(task="t", document=n, prompt=Prompt.of_text(str(n)), settings=settings)
            for n in range(count)
        ],
    )


def test_a_stopped_backlog_accepts_and_returns_nothing() -> None:
    from assay.engine.running.model_queue import Backlog

    async def use() -> list[Request]:
        backlog = Backlog(10)
        (requests,) = _requests(3)
        await backlog.put(requests)
        await backlog.stop()
        await backlog.put(requests)
        await backlog.put_first(requests)
        return await backlog.take(5)

    assert asyncio.run(asyncio.wait_for(use(), 5)) == []


# --- requests that get no answer -----------------------------------------------------------------------


def finish(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine that may hang without the fix that it tests."""
    asyncio.run(asyncio.wait_for(work(), 20))


class PaidJudge(PaidModel):
    """A judge with a bill that answers when `gate` is set."""

    def __init__(self, name: str = "judge", **details: Any) -> None:
        super().__init__(name=name, window=1, in_flight=1, **details)
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.error: Exception | None = None

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Any]:
        self.started.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        async for outcome in super().answer(window):
            yield outcome


@asynccontextmanager
async def open_services(folder: Path, *judges: PaidJudge, limit_usd: float) -> AsyncIterator[Any]:
    from assay.core.progress import RunProgress
    from assay.engine.running.services import ModelServices

    ledger = CostLedger(load_prices(), limit_usd=limit_usd)
    journal = Journal.open_for_writing(folder)
    services = ModelServices(journal, None, RunProgress(), {}, None, ledger)
    for judge in judges:
        services.add_judge(judge.name, judge, {"name": judge.name})
    try:
        yield services, ledger
    finally:
        await services.close()
        journal.close()
    assert not ledger.reserved, "every reservation is settled"


@pytest.mark.parametrize("error", [AssayError("no quota"), RuntimeError("no quota")])
def test_a_failing_judge_releases_its_reservations(workspace: Path, error: Exception) -> None:
    async def use() -> None:
        judge = PaidJudge()
        judge.error = error
        judge.gate.set()
        async with open_services(workspace, judge, limit_usd=5.0) as (services, ledger):
            (requests,) = _requests(8)
            outcomes = await asyncio.gather(*(services.ask("judge", request) for request in requests))
            assert all(isinstance(outcome, Failure) for outcome in outcomes)
            assert all("no quota" in outcome.message for outcome in outcomes)
            assert not ledger.reserved

    finish(use)


def test_a_judge_that_cannot_be_opened_releases_its_reservations(workspace: Path) -> None:
    class ClosedJudge(PaidJudge):
        async def open(self) -> None:
            raise OSError("no key")

    async def use() -> None:
        async with open_services(workspace, ClosedJudge(), limit_usd=5.0) as (services, ledger):
            (requests,) = _requests(3)
            asked = (services.ask("judge", request) for request in requests)
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert all("no key" in str(outcome) for outcome in outcomes)
            assert not ledger.reserved

    finish(use)


def test_identical_requests_that_wait_for_the_budget_are_sent_once(workspace: Path) -> None:
    async def use() -> None:
        judge = PaidJudge()
        async with open_services(workspace, judge, limit_usd=5.0) as (services, _):
            first, second = _requests(2)[0]
            same = (first, second, second, second)
            asked = [asyncio.ensure_future(services.ask("judge", one)) for one in same]
            await judge.started.wait()
            asked[1].cancel()  # the other callers still get their answer
            judge.gate.set()
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            names = [type(outcome).__name__ for outcome in outcomes]
            assert names == ["Response", "CancelledError", "Response", "Response"]
            assert [request.id for request in judge.asked] == [first.id, second.id]

    finish(use)


def test_the_same_request_to_two_judges_is_reserved_twice(workspace: Path) -> None:
    async def use() -> None:
        fast, slow = PaidJudge("fast"), PaidJudge("slow")
        async with open_services(workspace, fast, slow, limit_usd=5.0) as (services, ledger):
            first, second = _requests(2)[0]
            waiting = [
                asyncio.ensure_future(services.ask("slow", first)),
                asyncio.ensure_future(services.ask("slow", second)),  # waits for the first
            ]
            await slow.started.wait()
            fast.gate.set()
            assert isinstance(await services.ask("fast", first), Response)
            assert len(ledger.reserved) == 1 and not ledger.is_exhausted
            slow.gate.set()
            assert [type(outcome) for outcome in await asyncio.gather(*waiting)] == [Response, Response]

    finish(use)


def test_closing_the_judges_ends_requests_that_wait_for_the_budget(workspace: Path) -> None:
    async def use() -> None:
        judge = PaidJudge()
        async with open_services(workspace, judge, limit_usd=5.0) as (services, ledger):
            asked = [asyncio.ensure_future(services.ask("judge", request)) for request in _requests(3)[0]]
            await judge.started.wait()
            await services.close()
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert all("the run was stopped" in str(outcome) for outcome in outcomes)
            assert not ledger.reserved

    finish(use)


def test_a_run_with_a_cost_limit_and_a_failing_judge_ends(workspace: Path) -> None:
    class BrokenJudge(PaidModel):
        def choose_answer(self, request: Request) -> Any:
            raise AssayError("no quota")

    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
    metrics = [{"metric": "good", "judge": {"kind": "binary"}}]
    path = write_task(workspace / "tasks", "sums", rows, metric_list=metrics)
    done = assay.run(
        model=PaidModel(), judge=BrokenJudge(name="judge"), tasks=[str(path)], no_cache=True, max_cost=5
    )
    assert done.spent.requests == 8
    endings = {ending for (ending,) in done.journal.query("SELECT outcome FROM outcomes")}
    assert endings == {"judge-failed"}
