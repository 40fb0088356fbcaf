"""The chart of outcomes."""

from __future__ import annotations

from assay.core.records.endings import ENDINGS
from assay.viewer.charts import (
    DARK,
    OUTCOME_COLOURS,
    OutcomeBar,
    build_outcomes_figure,
)


def test_every_ending_has_a_distinct_colour() -> None:
    assert list(OUTCOME_COLOURS)[:-1] == list(ENDINGS)
    assert len(set(OUTCOME_COLOURS.values())) == len(OUTCOME_COLOURS)


def test_outcomes_are_shares_and_omit_endings_without_documents() -> None:
    bars = [
        OutcomeBar(name="a", counts={"failed": 1, "scored": 3}),
        OutcomeBar(name="b", counts={"scored": 5}),
    ]
    figure = build_outcomes_figure(bars, DARK)
    assert [(trace["name"], trace["x"]) for trace in figure["data"]] == [
        ("scored", [0.75, 1.0]),
        ("failed", [0.25, 0.0]),
    ]
