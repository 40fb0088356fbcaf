from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from assay.core.errors import InvalidOption
from assay.viewer.training_curves.curve import TrainingCurve
from assay.viewer.training_curves.drawing import choose_ticks, draw_curve, write_curve


def test_svg_has_a_dot_for_each_checkpoint_and_marks_regressions(
    curve: TrainingCurve, tmp_path: Path
) -> None:
    write_curve(curve, tmp_path / "curve.svg")
    root = ElementTree.parse(tmp_path / "curve.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    colours = [dot.get("fill") for dot in root.iter(f"{space}circle")]
    assert colours == ["#1f6feb", "#1f6feb", "#1a7f37", "#cf222e"]
    texts = [label.text for label in root.iter(f"{space}text")]
    assert "sums, exact_match" in texts and "400" in texts


def test_names_of_tasks_are_escaped(curve: TrainingCurve) -> None:
    hostile = replace(curve, tasks=(replace(curve.tasks[0], task="<script>\x1b"),))
    text = draw_curve(hostile).to_svg()
    assert "<script>" not in text and "\x1b" not in text
    ElementTree.fromstring(text)


def test_curve_without_checkpoints_and_with_one_can_be_drawn(curve: TrainingCurve) -> None:
    assert "No checkpoint" in draw_curve(replace(curve, tasks=())).to_svg()
    one = replace(curve.tasks[0], points=curve.tasks[0].points[:1], best=None)
    ElementTree.fromstring(draw_curve(replace(curve, tasks=(one,))).to_svg())


def test_png_and_csv_are_written(curve: TrainingCurve, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    for name, start in (("curve.png", b"\x89PNG"), ("curve.csv", b"task,metric")):
        write_curve(curve, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_other_formats_are_rejected(curve: TrainingCurve, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="unsupported format"):
        write_curve(curve, tmp_path / "curve.pdf")


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.501, 0.502), (-3.0, 2000.0), (5.0, 5.0)])
def test_ticks_lie_inside(low: float, high: float) -> None:
    ticks = choose_ticks(low, high)
    assert 1 <= len(ticks) <= 6
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
