"""Tests of how documents end: one word each."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.records.endings import ENDINGS, classify_ending
from assay.core.records.responses import Finish, LogProbability, Response


def make_response(text: str, finish: Finish = "stop") -> Response:
    return Response(request_id="r", value=text, finish=finish)


@pytest.mark.parametrize(
    ("responses", "found", "expected"),
    [
        ([make_response("5")], None, "scored"),
        ([make_response("5")], True, "scored"),
        ([make_response("five")], False, "unparsed"),
        ([make_response("five", "length")], False, "truncated"),
        ([make_response("five", "length")], None, "truncated"),
        ([make_response("it is 5, and", "length")], True, "scored"),
        ([make_response(" \n")], None, "empty"),
        ([make_response(" \n")], False, "empty"),
        ([make_response("", "length")], None, "truncated"),
        ([make_response("I cannot", "refused")], None, "refused"),
        ([make_response("", "refused")], False, "refused"),
        ([make_response("a", "length"), make_response("b")], None, "scored"),
        ([make_response(""), make_response("b")], None, "scored"),
        ([make_response("x", ""), make_response("y", "")], False, "unparsed"),
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
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "outcomes.md").read_text("utf-8")
    rows = [f"| `{ending}` | {meaning} |" for ending, meaning in ENDINGS.items()]
    assert "\n".join(rows) in guide
