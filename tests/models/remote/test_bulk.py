"""JSON with large texts in it."""

from __future__ import annotations

import json

import pytest

from assay.models.remote.bulk import Bulk, plain, write_json


def test_what_is_written_is_the_json_of_the_plain_value() -> None:
    value = {
        "messages": [
            {"role": "user", "content": [{"url": Bulk((b"data:image/png;base64,", b"aGVsbG8="))}, {"text": "né \"x\"\n"}]},
            {"role": "user", "content": [{"data": Bulk((b"d29ybGQ=",))}, {"data": Bulk((b"",))}]},
        ],
        "n": 1,
    }  # fmt: skip
    written = write_json(value, before=b'{"a": ', after=b"}")
    assert json.loads(written) == {"a": plain(value)}
    assert plain(value)["messages"][0]["content"][0]["url"] == "data:image/png;base64,aGVsbG8="
    assert isinstance(value["messages"][0]["content"][0]["url"], Bulk), "the value itself stays as it was"  # type: ignore[index]


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="a set is no JSON"):
        write_json({"a": {1}})
