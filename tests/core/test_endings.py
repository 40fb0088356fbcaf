"""Tests of how documents end: one word each."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.endings import ENDINGS, classify_ending
from assay.core.responses import Finish, LogProbability, Response


def said(text: str, finish: Finish = "stop") -> Response:
    return Response(request_id="r", value=text, finish=finish)


@pytest.mark.parametrize(
    ("responses", "found", "expected"),
    [
        ([said("5")], None, "scored"),
        ([said("5")], True, "scored"),
        ([said("five")], False, "unparsed"),
        ([said("five", "length")], False, "truncated"),
        ([said("five", "length")], None, "truncated"),
        ([said("it is 5, and", "length")], True, "scored"),
        ([said(" \n")], None, "empty"),
        ([said(" \n")], False, "empty"),
        ([said("", "length")], None, "truncated"),
        ([said("I cannot", "refused")], None, "refused"),
        ([said("", "refused")], False, "refused"),
        ([said("a", "length"), said("b")], None, "scored"),
        ([said(""), said("b")], None, "scored"),
        ([said("x", ""), said("y", "")], False, "unparsed"),
        ([Response(request_id="r", value=LogProbability(-1.0))], None, "scored"),
        ([], None, "scored"),
    ],
)
def test_a_judged_document_ends_in_one_way(
    responses: list[Response], found: bool | None, expected: str
) -> None:
    assert classify_ending(responses, found) == expected
    assert expected in ENDINGS


def test_the_guide_lists_every_ending_as_the_code_explains_it() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "outcomes.md").read_text("utf-8")
    rows = [f"| `{ending}` | {meaning} |" for ending, meaning in ENDINGS.items()]
    assert "\n".join(rows) in guide
