from __future__ import annotations

from assay.scoring.filters import FILTERS


def test_every_response_is_replaced() -> None:
    made = FILTERS.get("call")(text_fn=str.upper)
    assert made.apply([["a", "b"], ["c"]], [{}, {}]) == [["A", "B"], ["C"]]
