"""JSON with large texts in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.models.remote.protocol.json_writer import RawString, to_plain_json, write_json


def test_the_output_equals_plain_json() -> None:
    value: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": [{"url": RawString((b"data:image/png;base64,", b"aGVsbG8="))}, {"text": "né \"x\"\n"}]},
            {"role": "user", "content": [{"data": RawString((b"d29ybGQ=",))}, {"data": RawString((b"",))}]},
        ],
        "n": 1,
    }  # fmt: skip
    written = write_json(value, before=b'{"a": ', after=b"}")
    assert json.loads(written) == {"a": to_plain_json(value)}
    assert to_plain_json(value)["messages"][0]["content"][0]["url"] == "data:image/png;base64,aGVsbG8="
    assert isinstance(value["messages"][0]["content"][0]["url"], RawString)  # the value is unchanged


def test_values_that_are_not_json_are_rejected() -> None:
    with pytest.raises(TypeError, match="a set is not JSON serialisable"):
        write_json({"a": {1}})
