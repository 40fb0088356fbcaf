"""Documents as samples of inspect_ai."""

from __future__ import annotations

import math
from typing import Any

import pytest

from assay.engine.imports.inspect_messages import RequestReader
from assay.viewer.exports.inspect_samples import SampleBuilder, build_config, build_summary, build_usage

TIME = "2026-01-02T03:04:05+00:00"


def build(run: Any, task: str, document: int) -> list[dict[str, Any]]:
    (record,) = run.records(task, [document])
    return list(SampleBuilder(run, "org/tiny", TIME).build_samples(task, record))


def test_repeats_are_epochs_with_scores_of_their_own(rich_run: Any) -> None:
    first, second = build(rich_run, "sums", 3)
    assert [first["epoch"], second["epoch"]] == [1, 2]
    scores = [one["scores"]["exact_match,strict"]["value"] for one in (first, second)]
    assert scores == [1.0, 0.0]
    assert first["output"]["completion"] == "4"


def test_a_failed_document_has_an_error_and_no_score(rich_run: Any) -> None:
    sample = build(rich_run, "sums", 2)[0]
    assert sample["error"]["message"] == "server error: 503 <b>down</b>"
    assert sample["scores"] == {} and sample["output"]["choices"] == []
    assert build_summary(sample)["error"] == "server error: 503 <b>down</b>"


def test_reasoning_is_a_part_of_the_message(rich_run: Any) -> None:
    message = build(rich_run, "sums", 4)[0]["messages"][-1]
    assert message["content"] == [
        {"type": "reasoning", "reasoning": "one more"},
        {"type": "text", "text": "5"},
    ]


def test_likelihoods_are_choices_and_metadata(rich_run: Any) -> None:
    (sample,) = build(rich_run, "choices", 0)
    assert sample["choices"] == [" no", " yes"] and sample["output"]["completion"] == " yes"
    assert sample["target"] == " yes"
    assert [one["logprob"] for one in sample["metadata"]["assay"]["likelihoods"]] == [-2.5, -1.0]


def test_every_call_of_an_agent_is_an_event(rich_run: Any) -> None:
    (sample,) = build(rich_run, "counter", 1)
    assert [event["event"] for event in sample["events"]] == ["model"] * 3
    assert sample["events"][0]["tools"][0]["name"] == "add"
    assert sample["events"][0]["output"]["choices"][0]["stop_reason"] == "tool_calls"
    assert [message["role"] for message in sample["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]


def test_images_are_attachments(rich_run: Any) -> None:
    (sample,) = build(rich_run, "pictures", 0)
    (image,) = (part for part in sample["input"][0]["content"] if part["type"] == "image")
    key = image["image"].removeprefix("attachment://")
    assert sample["attachments"][key].startswith("data:image/png;base64,")
    assert build_summary(sample)["input"][0]["content"] == "(image)\nWhich colour?"


def test_missing_media_are_text(rich_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.viewer.exports.inspect_samples.find_media_file", lambda *given: None)
    (sample,) = build(rich_run, "pictures", 0)
    assert sample["input"][0]["content"][0] == {"type": "text", "text": "[image: picture]"}
    assert sample["attachments"] == {}


def build_one(**fields: Any) -> dict[str, Any]:
    """Build the sample of a document with some fields."""
    empty: dict[str, Any] = {"fields": {}, "target": None, "requests": [], "answers": {}, "verdicts": []}
    document = {"document": 0, "outcome": "scored", "why": "", **empty, **fields}
    run: Any = type("Anything", (), {"id": "run"})()
    (sample,) = SampleBuilder(run, "m", TIME).build_samples("task", document)
    return sample


@pytest.mark.parametrize(
    ("requests", "choices"),
    [
        pytest.param(
            [("2 + 2 =", " 3"), ("2 + 2 =", " 4"), ("", " 3"), ("", " 4")], [" 3", " 4"], id="mutual information"
        ),
        pytest.param([("The cup", " is big"), ("The pot", " is big")], ["The cup is big", "The pot is big"], id="prompts"),
    ],
)  # fmt: skip
def test_choices_are_texts_and_an_import_has_every_prompt(
    requests: list[tuple[str, str]], choices: list[str]
) -> None:
    asked = [
        {"kind": "likelihood", "prompt": prompt, "continuation": text, "logprob": -1.0 / place}
        for place, (prompt, text) in enumerate(requests, 1)
    ]
    sample = build_one(target=1, requests=asked)
    assert sample["choices"] == choices and sample["target"] == choices[1]
    assert sample["output"]["completion"] == choices[1]
    assert sample["metadata"]["assay"]["target"] == 1
    reader = RequestReader(task="task", document=0, is_own=True)
    reader.add_sample(sample, 0)
    assert [(one.prompt.text, getattr(one, "continuation", None)) for one in reader.requests] == requests


def test_documents_without_a_score_have_no_number() -> None:
    verdict = {"filter": "none", "metric": "acc", "kind": "unscored", "value": None, "why": "no letter"}
    sample = build_one(outcome="unparsed", why="no answer", verdicts=[verdict])
    score = sample["scores"]["acc"]
    assert math.isnan(score["value"]) and score["explanation"] == "no letter"
    assert sample["error"]["message"] == "no answer"


def test_usage_separates_cached_tokens() -> None:
    requests: list[dict[str, Any]] = [
        {"input_tokens": 10, "output_tokens": 2, "cached_tokens": 4, "cost_usd": 0.5},
        {"response": None},
    ]
    assert build_usage(requests) == {
        "input_tokens": 6,
        "output_tokens": 2,
        "total_tokens": 12,
        "input_tokens_cache_read": 4,
        "total_cost": 0.5,
    }
    assert build_usage([{"response": None}]) == {}


def test_settings_have_the_names_of_inspect() -> None:
    given = {
        "until": ["\n"],
        "max_gen_toks": 5,
        "do_sample": False,
        "top_p": 0.5,
        "reasoning_effort": "low",
        "seed": 3,
    }
    assert build_config(given) == {
        "max_tokens": 5,
        "seed": 3,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop_seqs": ["\n"],
        "reasoning_effort": "low",
    }
    assert build_config({}) == {}
