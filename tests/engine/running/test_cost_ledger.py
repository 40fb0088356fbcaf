"""Tests of run costs: prices, separate counts for judges, and the cost limit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, write_task

import assay
from assay.core.errors import BudgetExceeded, InvalidOption
from assay.core.requests import Request
from assay.core.responses import Failure, Response, Usage
from assay.engine.running.cost_ledger import CostLedger
from assay.models.prices import Price, PriceTable
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


def test_requests_in_flight_reserve_their_cost() -> None:
    prices = PriceTable(({"x/y": Price(input=0, output=1e6)},))
    ledger = CostLedger(prices, limit_usd=25.0)
    account = ledger.account(_NamedModel("x/y"))
    (requests,) = _requests(6)

    async def use() -> None:
        assert len(await account.admit(requests[:2])) == 2
        waiting = asyncio.ensure_future(account.admit(requests[2:]))
        await asyncio.sleep(0)
        assert not waiting.done()
        account.charge(Response(request_id=requests[0].id, value="", usage=Usage(0, 10)))
        account.charge(Response(request_id=requests[1].id, value="", usage=Usage(0, 10)))
        assert await waiting == []
        assert ledger.is_exhausted

    asyncio.run(asyncio.wait_for(use(), 5))


def test_estimates_are_corrected_by_actual_costs() -> None:
    prices = PriceTable(({"x/y": Price(input=0, output=1e6)},))
    ledger = CostLedger(prices, limit_usd=25.0)
    account = ledger.account(_NamedModel("x/y"))
    (requests,) = _requests(6)
    (first,) = asyncio.run(account.admit(requests[:1]))
    account.charge(Response(request_id=first.id, value="", usage=Usage(0, 1)))
    assert ledger.spent_usd == pytest.approx(1.0)
    assert len(asyncio.run(account.admit(requests[1:]))) == 5


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
    from assay.core.messages import Prompt
    from assay.core.requests import Generate, Settings

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
