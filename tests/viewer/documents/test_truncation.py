"""How much of a truncated prompt the model read."""

from __future__ import annotations

import pytest

from assay.core.records.responses import Response, Usage
from assay.store.documents.details import RequestRecord
from assay.viewer.documents.truncation import describe_truncation


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([], ""),
        ([None, Usage(40, 3)], ""),
        ([Usage(40, 3), Usage(44, 1, truncated_tokens=1301)], "the model read the last 44 of 1345 tokens"),
        (
            [Usage(10, 1, truncated_tokens=8), Usage(12, 1, truncated_tokens=5)],
            "the model read the last 10 of 18 tokens",
        ),
    ],
)
def test_the_most_truncated_prompt_is_described(usages: list[Usage | None], expected: str) -> None:
    asked = [
        RequestRecord(
            number=at,
            repeat=0,
            kind="generate",
            prompt=0,
            response=Response(request_id="", value="x", usage=usage),
        )
        for at, usage in enumerate(usages)
    ]
    assert describe_truncation(asked) == expected
    without = RequestRecord(number=9, repeat=0, kind="generate", prompt=0)
    assert describe_truncation([*asked, without]) == expected
