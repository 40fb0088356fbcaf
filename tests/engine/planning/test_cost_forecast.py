"""Tests of the forecast of `assay plan`: number of requests, ranges of tokens and cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.running.test_cost_ledger import PaidModel
from tests.making import plan_run, write_choices, write_task

import assay
from assay.engine.planning.cost_forecast import Range, forecast_cost
from assay.testing import ScriptedModel


def test_the_forecast_follows_from_prompts_and_limits(workspace: Path) -> None:
    path = write_task(workspace, generation_kwargs={"max_gen_toks": 100, "until": ["\n"]})
    expected = forecast_cost(plan_run(PaidModel(), tasks=[str(path)]))
    letters = 6 * len("Question: What is 0 + 1?\nAnswer:")
    assert expected.counts == {"sums": {"generate": 6}}
    assert (expected.input_tokens.low, expected.input_tokens.high) == pytest.approx(
        (letters / 5, letters / 3)
    )
    assert (expected.output_tokens.low, expected.output_tokens.high) == (24, 600)
    assert expected.cost_usd is not None
    high = (round(letters / 3) * 0.15 + 600 * 0.60) / 1e6
    assert expected.cost_usd.high == pytest.approx(high)
    assert 0 < expected.cost_usd.low < expected.cost_usd.high
    assert expected.price_date


def test_a_batch_is_estimated_at_the_batch_price(workspace: Path) -> None:
    path = str(write_task(workspace))
    whole = forecast_cost(plan_run(PaidModel(), tasks=[path])).cost_usd
    half = forecast_cost(plan_run(PaidModel(), tasks=[path], batch_api=True)).cost_usd
    assert whole is not None and half is not None
    assert half.high == pytest.approx(whole.high / 2)


def test_log_likelihoods_have_no_output_tokens(workspace: Path) -> None:
    expected = forecast_cost(plan_run(ScriptedModel(), tasks=[str(write_choices(workspace))]))
    assert expected.counts == {"choices": {"likelihood": 8}}
    assert expected.output_tokens.high == 0
    assert expected.input_tokens.low > 0
    assert (expected.billed_as, expected.cost_usd) == ("", None)


def test_there_is_no_cost_forecast_without_a_price(workspace: Path) -> None:
    class UnknownPriceModel(PaidModel):
        billed = "openai/unheard-of"

    expected = forecast_cost(plan_run(UnknownPriceModel(), tasks=[str(write_task(workspace))]))
    assert (expected.billed_as, expected.cost_usd) == ("openai/unheard-of", None)


def test_prompts_are_counted_in_tokens_where_the_tokenizer_is_known(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": "word " * count, "answer": "1"} for count in (10, 250, 30, 20)]
    path = write_task(workspace, "long", rows, generation_kwargs={"max_gen_toks": 8, "until": ["\n"]})
    expected = forecast_cost(plan_run("embedded", tasks=[str(path)])).input_tokens
    actual = assay.run(model="embedded", tasks=[str(path)]).spent.input_tokens
    assert expected == Range(actual, actual)
    monkeypatch.setattr("assay.engine.planning.cost_forecast._MAX_COUNTED_PROMPTS", 2)
    estimated = forecast_cost(plan_run("embedded", tasks=[str(path)])).input_tokens
    assert 0.98 * actual < estimated.low <= actual <= estimated.high < 1.02 * actual
    assert estimated.low < estimated.high


def test_the_forecast_equals_the_truncated_prompts_of_the_run(workspace: Path) -> None:
    rows = [{"question": "word " * count, "answer": "1"} for count in (10, 250)]
    path = write_task(workspace, "long", rows, generation_kwargs={"max_gen_toks": 8, "until": ["\n"]})
    expected = forecast_cost(plan_run("embedded", tasks=[str(path)])).tasks["long"]
    found = assay.run(model="embedded", tasks=[str(path)]).truncated_prompts["long"]
    assert (expected.truncated, expected.truncated_tokens, expected.kept_tokens) == (
        found.requests, found.truncated_tokens, found.input_tokens,
    )  # fmt: skip
