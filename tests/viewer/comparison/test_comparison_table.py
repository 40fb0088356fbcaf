"""A comparison as a table, JSON and Markdown."""

from __future__ import annotations

import json

from tests.viewer.comparison.conftest import Runs, right_for

import assay
from assay.viewer.comparison.comparison_table import (
    build_comparison_table,
    format_markdown_table,
)
from assay.viewer.text_tables import render_table_text


def test_no_significant_difference_shows_the_detectable_difference(runs: Runs) -> None:
    found = assay.compare(runs(right_for(1, 2, 3)), runs(right_for(2, 3, 4)))
    (row,) = found.rows
    assert not row.differs and row.better is None
    assert row.detectable is not None and 0.05 < row.detectable < 0.3
    text = render_table_text(build_comparison_table(found, found.rows))
    assert "no significant difference" in text
    assert f"±{100 * row.detectable:.1f}" in text


def test_a_comparison_converts_to_json_and_markdown(runs: Runs) -> None:
    found = assay.compare(runs(right_for()), runs(right_for(1)))
    assert json.loads(json.dumps(found.as_json()))["rows"][0]["documents"] == 40
    assert "| sums | exact_match | 0.0000 | 0.0250 | +2.50 |" in format_markdown_table(found, found.rows)
