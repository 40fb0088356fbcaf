"""Every kind of judge keeps the contract, and the check sees one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from assay.scoring.judges import JUDGES, Case, Invalid, Ruling
from assay.scoring.judges.binary import BinaryJudge
from assay.testing import ContractBroken, check_judge

KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "binary": ({}, ["VERDICT: CORRECT"]),
    "score": ({"range": [2, 5]}, ["SCORE: 4"]),
    "rubric": ({"criteria": {"facts": "right?", "style": "short?"}, "range": [2, 5]}, ['{"facts": 3, "style": 4}']),
    "comparative": ({}, ["BETTER: A", "BETTER: B"]),
}  # fmt: skip


def test_every_kind_is_tried() -> None:
    assert set(KINDS) == set(JUDGES.names())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_keeps_the_contract(kind: str) -> None:
    arguments, ruling = KINDS[kind]
    check_judge(lambda: JUDGES.get(kind)(**arguments), ruling)


class Lenient(BinaryJudge):
    def rule(self, replies: Sequence[str]) -> Ruling | Invalid:
        return Ruling(label="correct", value=float("1" in replies[0]))


class Gullible(BinaryJudge):
    def prompts(self, case: Case) -> Sequence[str]:
        return [f"Is it right? {case.response[:5]}"]


class Talkative(BinaryJudge):
    parts = ("mood",)


@pytest.mark.parametrize(
    ("make", "promise"),
    [(Lenient, "is no ruling"), (Gullible, "as it is"), (Talkative, "that are announced")],
)
def test_a_broken_promise_is_named(make: Callable[[], BinaryJudge], promise: str) -> None:
    with pytest.raises(ContractBroken, match=promise):
        check_judge(make, ["VERDICT: CORRECT"])
