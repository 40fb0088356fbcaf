"""P-values adjusted for the number of tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_model, write_task
from tests.viewer.comparison.conftest import ROWS, Runs, right_for

import assay
from assay.viewer.comparison.comparison_table import (
    collect_remarks,
)
from assay.viewer.comparison.multiplicity import adjust_comparisons


def test_p_values_are_adjusted_for_the_number_of_tasks(tmp_path: Path) -> None:
    tasks = [str(write_task(tmp_path, f"sums{n}", ROWS)) for n in range(3)]
    folders = []
    for name, answers in (("a", right_for()), ("b", right_for(1, 2, 3, 4, 5, 6))):
        made = assay.run(
            model=make_model(answers), tasks=tasks, no_cache=True, output_path=str(tmp_path / name)
        )
        folders.append(made.folder)
    found = assay.compare(*folders)
    assert [row.p_value for row in found.rows] == [0.03125] * 3
    assert [row.adjusted_p for row in found.rows] == [0.09375] * 3
    assert not any(row.differs for row in found.rows)
    assert all(row.differs for row in assay.compare(*folders, correction="bh").rows)
    assert found.overall is not None and found.overall.differs
    assert found.overall.difference == pytest.approx(0.15)


def test_p_values_are_adjusted_for_several_runs(runs: Runs) -> None:
    base, others = runs(right_for()), [runs(right_for(*range(count))) for count in (0, 6, 12)]
    alone = [assay.compare(base, other) for other in others]
    together = adjust_comparisons(alone)
    assert [one.family for one in together] == [3, 3, 3]
    raw = [one.rows[0].p_value for one in alone]
    assert [one.rows[0].adjusted_p for one in together] == pytest.approx([1.0, 2 * raw[1], 3 * raw[2]])
    assert alone[1].rows[0].differs and not together[1].rows[0].differs
    wider = [
        (one.rows[0].detectable, other.rows[0].detectable) for one, other in zip(alone, together, strict=True)
    ]
    assert all(first < second for first, second in wider if first is not None and second is not None)
    notes = [text for kind, text in collect_remarks(together[1]) if kind == "note"]
    assert any("p and detectable are adjusted for all 3 tests (holm)" in note for note in notes)
