from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.records.messages import Audio, Image, Message, Prompt, Text, Video
from assay.core.records.requests import Likelihood
from assay.core.records.responses import LogProbability, Response, Usage
from assay.store.journal.rows import (
    build_answered_rows,
    build_response_row,
    encode_fields,
    encode_prompt,
    encode_requests,
    response_from_answered,
    response_from_row,
)

TEXTS = st.text(st.characters(codec=None), max_size=20)
RESPONSES = st.builds(
    Response,
    request_id=st.just("f"),
    value=st.one_of(TEXTS, st.builds(LogProbability, st.floats(allow_nan=False), st.booleans())),
    finish=st.sampled_from(["stop", "length", "refused", ""]),
    usage=st.one_of(st.none(), st.builds(Usage, st.integers(0, 10**9), st.integers(0, 10**9))),
    seconds=st.one_of(st.none(), st.floats(0, 1e6)),
    reasoning=st.one_of(st.none(), TEXTS),
)


@given(response=RESPONSES)
def test_a_response_survives_the_way_into_a_row_and_back(response: Response) -> None:
    assert response_from_row(build_response_row("f", response, source="model", at=1.0)) == response
    ((number, *columns),) = build_answered_rows([(7, "f", response, "")], source="model", at=1.0)
    assert (number, *columns[4:6]) == (7, "model", 1.0)
    assert response_from_answered(tuple(columns)) == response


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (Prompt.of_text("plain"), "plain"),
        (Prompt.of_text(""), ""),
        (Prompt((Message("user", (Text("a"), Text("b"))),)), "ab"),
    ],
)
def test_a_plain_prompt_is_its_text(prompt: Prompt, expected: str) -> None:
    assert encode_prompt(prompt) == expected


def test_a_prompt_with_media_is_json_that_says_what_they_are() -> None:
    given: dict[str, Any] = {"digest": "d", "load": lambda: None, "source": "s"}
    parts = (
        Image(**given),
        Audio(**given),
        Video(**given),
        Video(**given, start_s=1.0, end_s=2.5),
        Text("é"),
    )
    shown = json.loads(encode_prompt(Prompt((Message("user", parts),))))
    assert shown["chat"] is False
    assert shown["messages"][0]["content"] == [
        {"type": "image", "digest": "d", "source": "s"},
        {"type": "audio", "digest": "d", "source": "s"},
        {"type": "video", "digest": "d", "source": "s"},
        {"type": "video", "digest": "d", "source": "s", "start_s": 1.0, "end_s": 2.5},
        {"type": "text", "text": "é"},
    ]


def test_a_request_is_named_by_its_place() -> None:
    request = Likelihood(
        task="a", document=1, index=2, repeat=3, prompt=Prompt.of_text("Q"), continuation="x"
    )
    assert json.loads(encode_requests([request, request], ["f", "g"])) == {
        "prompts": ["Q"],
        "requests": [[2, 3, "likelihood", 0, "x", "f"], [2, 3, "likelihood", 0, "x", "g"]],
    }


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(fields=st.dictionaries(TEXTS, JSON, max_size=4))
def test_the_fields_of_a_document_are_json_that_sqlite_can_hold(fields: dict[str, Any]) -> None:
    text = encode_fields(fields)
    text.encode()
    assert json.loads(text) == fields


STRANGE = st.recursive(
    st.one_of(st.binary(max_size=3), st.integers(), st.floats(), TEXTS, st.builds(object), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.integers(), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(fields=st.dictionaries(TEXTS, STRANGE, max_size=4))
def test_whatever_the_fields_hold_there_is_a_text_for_it(fields: dict[str, Any]) -> None:
    encode_fields(fields).encode()
