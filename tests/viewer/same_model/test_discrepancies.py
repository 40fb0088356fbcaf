"""Discrepancies between two answers to the same requests."""

from __future__ import annotations

from typing import Any

import pytest

from assay.viewer.same_model.discrepancies import (
    find_first_difference,
    is_sampled,
    list_repeats,
    measure_noise,
    measure_pair,
    read_score,
)

TOOLS = {
    "tools": [
        {
            "name": "area",
            "parameters": {
                "type": "object",
                "properties": {"base": {"type": "integer"}},
                "required": ["base"],
            },
        }
    ]
}


def answer(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "generate", "prompt": "?", "response": text, "finish": "stop", **more}


def likelihood(logprob: float, kind: str = "likelihood", prompt: str = "?") -> dict[str, Any]:
    return {"kind": kind, "prompt": prompt, "response": None, "logprob": logprob}


def test_equal_answers_have_no_discrepancy() -> None:
    assert measure_pair([answer("Paris")], [answer("Paris")]) == {"texts": 0.0, "endings": 0.0}


@pytest.mark.parametrize(
    ("first", "second", "position"),
    [
        ("Paris", "Rome", 1),
        ("The capital is Paris", "The capital is Rome", 4),
        ("Paris", "Paris, France", 2),
        ("Paris", "Paris", None),
    ],
)
def test_texts_that_differ_earlier_differ_more(first: str, second: str, position: int | None) -> None:
    assert find_first_difference(answer(first), answer(second)) == position
    found = measure_pair([answer(first)], [answer(second)])
    assert found["texts"] == (0.0 if position is None else 1 / position)


def test_positions_are_tokens_if_the_runs_store_them() -> None:
    one = answer("a long word", tokens=[["a", -0.1], [" long", -0.2], [" word", -0.3]])
    other = answer("a long way", tokens=[["a", -0.1], [" long", -0.2], [" way", -0.3]])
    longer = answer("a long word.", tokens=[*one["tokens"], [".", -0.1]])
    assert find_first_difference(one, other) == 3
    assert find_first_difference(one, longer) == 4


def test_another_finish_reason_is_a_discrepancy() -> None:
    assert measure_pair([answer("a")], [answer("a", finish="length")])["endings"] == 1.0


def test_choices_are_compared_as_probabilities() -> None:
    same = measure_pair([likelihood(-1.0), likelihood(-9.0)], [likelihood(-11.0), likelihood(-19.0)])
    assert same["likelihoods"] == pytest.approx(0.0, abs=1e-12)
    swapped = measure_pair([likelihood(-1.0), likelihood(-30.0)], [likelihood(-30.0), likelihood(-1.0)])
    assert swapped["likelihoods"] == pytest.approx(1.0)


def test_one_continuation_is_compared_by_its_relative_probability() -> None:
    found = measure_pair([likelihood(-1.0)], [likelihood(-1.693147)])
    assert found["likelihoods"] == pytest.approx(0.5, abs=1e-4)
    assert measure_pair([likelihood(-float("inf"))], [likelihood(-float("inf"))])["likelihoods"] == 0.0


def test_whole_texts_are_compared_per_token() -> None:
    text = "word " * 80
    found = measure_pair([likelihood(-200.0, "rolling", text)], [likelihood(-201.0, "rolling", text)])
    assert found["likelihoods"] == pytest.approx(0.01, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "valid"),
    [
        ({"name": "area", "arguments": '{"base": 3}'}, True),
        ({"name": "area", "arguments": '{"base": "three"}'}, False),
        ({"name": "area", "arguments": '{"base": '}, False),
        ({"name": "volume", "arguments": "{}"}, False),
    ],
    ids=["valid", "wrong type", "no JSON", "unknown tool"],
)
def test_tool_calls_are_checked_with_their_schema(call: dict[str, str], valid: bool) -> None:
    good = answer("", tools=TOOLS, tool_calls=[{"name": "area", "arguments": '{"base": 1}'}])
    found = measure_pair([good], [answer("", tools=TOOLS, tool_calls=[call])])
    assert found["tool calls"] == float(not valid)
    assert found["texts"] > 0


def test_failed_requests_are_not_compared() -> None:
    assert measure_pair([answer("a")], [{"kind": "generate", "prompt": "?", "response": None}]) == {}


def test_noise_is_the_discrepancy_between_repeats() -> None:
    record = {"requests": [answer("a"), answer("a", repeat=1), answer("b", repeat=2)]}
    repeats = list_repeats(record)
    assert len(repeats) == 3
    assert measure_noise(repeats)["texts"] == pytest.approx(2 / 3)


def test_scores_of_repeats_are_preferred_and_others_must_be_shares() -> None:
    verdict = {"filter": "none", "metric": "acc", "kind": "score", "value": 1.0}
    record: dict[str, Any] = {"verdicts": [verdict]}
    assert read_score(record, ("none", "acc")) == [1.0]
    repeats = [{"filter": "none", "scores": {"acc": [1, 0]}}]
    assert read_score({**record, "repeats": repeats}, ("none", "acc")) == [1.0, 0.0]
    assert read_score({"verdicts": [{**verdict, "value": 7.0}]}, ("none", "acc")) is None
    assert read_score({"verdicts": [{**verdict, "kind": "unscored"}]}, ("none", "acc")) is None


@pytest.mark.parametrize(
    ("settings", "sampled"),
    [({}, False), ({"temperature": 0}, False), ({"temperature": 0.7}, True), ({"do_sample": True}, True)],
)
def test_a_temperature_means_sampling(settings: dict[str, Any], sampled: bool) -> None:
    assert is_sampled({"requests": [answer("a", settings=settings)]}) is sampled


@pytest.mark.parametrize("further", [[], [likelihood(-1.0)]])
def test_a_likelihood_that_is_no_number_differs_from_a_number_only(further: list[dict[str, Any]]) -> None:
    unknown, known = [likelihood(float("nan")), *further], [likelihood(-2.0), *further]
    assert measure_pair(unknown, unknown)["likelihoods"] == 0.0
    assert measure_pair(unknown, known)["likelihoods"] == 1.0
