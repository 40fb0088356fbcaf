"""The HTML file is self-contained, loads nothing and escapes the text of models and tasks."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.viewer.report.conftest import HOSTILE

from assay.core.errors import MissingPackage
from assay.core.installation import format_install_command


class PageParser(HTMLParser):
    """Collects the elements, scripts and texts of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag == "script"
        if self._open:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.scripts[-1] += data
        self.texts.append(data)


@pytest.fixture(scope="module")
def read(page: Path) -> PageParser:
    parser = PageParser()
    parser.feed(page.read_text("utf-8"))
    return parser


def test_the_file_contains_no_foreign_scripts(read: PageParser) -> None:
    kinds = [attributes.get("type") for tag, attributes in read.elements if tag == "script"]
    assert kinds == [*["application/json"] * 3, "text/plain", None]
    handlers = [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    assert handlers == []
    assert not {tag for tag, _ in read.elements} & {"iframe", "object", "embed", "form", "base", "link"}


def test_the_policy_allows_exactly_the_embedded_scripts(read: PageParser) -> None:
    from assay.viewer.report.html_page import read_plotly_script

    policy = next(
        attributes["content"] or ""
        for tag, attributes in read.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    ours = [read.scripts[-1], read_plotly_script()]
    for script in ours:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert "http" not in policy


def test_the_file_loads_nothing(read: PageParser) -> None:
    addresses = [
        value or ""
        for _, attributes in read.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "data", "poster", "action")
    ]
    assert all(address.startswith(("#", "data:")) for address in addresses)


def test_text_of_models_and_tasks_is_escaped(read: PageParser, page: Path) -> None:
    whole = "".join(read.texts)
    for text in (HOSTILE[0], HOSTILE[2], "503 <b>down</b>", "<i>sums</i>"):
        assert text in whole
    written = page.read_text("utf-8")
    assert "\x1b" not in written
    assert "\u202e" not in written


def test_embedded_figures_cannot_close_their_script_element(read: PageParser) -> None:
    figures = json.loads(read.scripts[0])
    wanted = {attributes["data-figure"] for _, attributes in read.elements if attributes.get("data-figure")}
    assert wanted == set(figures)
    assert {"scores-0", "forest-1-0", "outcomes-0", "categories-sums"} <= wanted
    assert "<" not in read.scripts[0]


def test_the_file_is_small(page: Path) -> None:
    assert page.stat().st_size < 3_000_000


def test_a_missing_plotly_is_reported_before_the_run_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.viewer.report import html_page as module

    module.read_plotly_script.cache_clear()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as caught:
        module.read_plotly_script()
    assert format_install_command("viewer") in caught.value.hint
    module.read_plotly_script.cache_clear()
