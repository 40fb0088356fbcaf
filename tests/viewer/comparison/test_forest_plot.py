"""The forest plot as text and as a file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.viewer.comparison.conftest import Runs, right_for

import assay
from assay.core.errors import InvalidOption
from assay.viewer.comparison.forest_plot import draw_forest_plot, format_plot_line, write_forest_plot


def test_plots_show_every_row_and_escape_names(runs: Runs, tmp_path: Path) -> None:
    found = assay.compare(runs(right_for()), runs(right_for(*range(20))), category="kind")
    svg = draw_forest_plot(found).to_svg()
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert {"sums", "even", "odd"} <= set(texts)
    write_forest_plot(found, tmp_path / "deep" / "forest.png")
    assert (tmp_path / "deep" / "forest.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidOption, match="forest"):
        write_forest_plot(found, tmp_path / "forest.jpg")
    line = format_plot_line(found.rows[0], 1.0, 21)
    assert len(line) == 21 and line[10] == "│" and "●" in line[11:]
