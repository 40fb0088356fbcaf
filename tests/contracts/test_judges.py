"""Contract of judges: all built-in kinds satisfy it, and violations are detected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from assay.scoring.judges import JUDGES, InvalidReply, JudgeInput, JudgeVerdict
from assay.scoring.judges.kinds.binary import BinaryJudge
from assay.testing import ContractViolation, check_judge

KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "binary": ({}, ["VERDICT: CORRECT"]),
    "score": ({"range": [2, 5]}, ["SCORE: 4"]),
    "rubric": ({"criteria": {"facts": "right?", "style": "short?"}, "range": [2, 5]}, ['{"facts": 3, "style": 4}']),
    "comparative": ({}, ["BETTER: A", "BETTER: B"]),
}  # fmt: skip


def test_every_kind_is_covered() -> None:
    assert set(KINDS) == set(JUDGES.names())


@pytest.mark.parametrize("kind", KINDS)
def test_built_in_kind_satisfies_the_contract(kind: str) -> None:
    arguments, ruling = KINDS[kind]
    check_judge(lambda: JUDGES.get(kind)(**arguments), ruling)


class AcceptsAnyReply(BinaryJudge):
    def parse_replies(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        return JudgeVerdict(label="correct", value=float("1" in replies[0]))


class TruncatesResponse(BinaryJudge):
    def build_prompts(self, judge_input: JudgeInput) -> Sequence[str]:
        return [f"Is it right? {judge_input.response[:5]}"]


class DeclaresMissingParts(BinaryJudge):
    parts = ("mood",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (AcceptsAnyReply, "the invalid reply"),
        (TruncatesResponse, "contain the response"),
        (DeclaresMissingParts, "declared"),
    ],
)
def test_violation_is_reported(make: Callable[[], BinaryJudge], message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        check_judge(make, ["VERDICT: CORRECT"])
