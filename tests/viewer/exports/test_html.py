"""The table of results as an HTML page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.making import make_model, write_task
from tests.viewer.exports.conftest import ROWS, export_text

import assay


class _Tags(HTMLParser):
    """The elements and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_table_has_every_score_and_no_scripts(tmp_path: Path) -> None:
    path = write_task(tmp_path, "sums", ROWS[:2], task_alias="<script>alert(1)</script>")
    run = assay.run(model=make_model(), tasks=[str(path)], output_path=str(tmp_path))
    page = _Tags()
    page.feed(export_text(run, "html-table"))
    run.close()
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.texts
    assert {"1.0000", "± 0.0000", "exact_match"} <= set(page.texts)
