"""A report is one self-contained file that loads nothing and escapes the text of models and tasks."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import wave
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task
from tests.viewer.report.conftest import HOSTILE, digest_of, picture

import assay
from assay.cli.app import run_command_line
from assay.core.errors import InvalidOption, MissingPackage
from assay.core.installation import format_install_command
from assay.store.runs.media_files import write_media
from assay.viewer.report import ReportOptions, build_report
from assay.viewer.report.documents import ReportPart
from assay.viewer.report.media import MediaEmbedder, make_thumbnail


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
    assert kinds == ["application/json", "application/json", "text/plain", None]
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


def test_the_sample_has_every_kind_of_document_and_both_runs(runs: list[Any]) -> None:
    report = build_report(runs, ReportOptions(documents=10, seed=3))
    assert len(report.documents) == 10
    assert {view.task for view in report.documents} == {"<i>sums</i>", "choices"}
    assert {view.why for view in report.documents} >= {"wrong", "failed", "right"}
    assert all(len(view.sides) == 2 for view in report.documents)
    again = build_report(runs, ReportOptions(documents=10, seed=3))
    assert [view.number for view in again.documents] == [view.number for view in report.documents]
    choices = next(view for view in report.documents if view.task == "choices")
    assert [(choice["text"], choice["chosen"]) for choice in choices.sides[0].choices] == [
        (" no", False),
        (" yes", True),
    ]


def test_a_report_of_one_run_has_no_comparison_and_may_have_no_documents(runs: list[Any]) -> None:
    report = build_report(runs[:1], ReportOptions(documents=0))
    assert (report.documents, report.comparisons, report.matrix) == ([], [], None)
    assert [row["value"] for row in report.rows] == ["0.2353", "0.5000"]
    assert "documents" not in dict(report.sections)


def test_different_settings_are_highlighted(runs: list[Any]) -> None:
    rows = {
        row["name"]: row["differs"] for row in build_report(runs, ReportOptions(documents=0)).settings["rows"]
    }
    assert rows["--model"] is True
    assert rows["--seed"] is False


def test_a_long_prompt_is_collapsed_before_its_question() -> None:
    from assay.viewer.report.documents import build_text_part

    part = build_text_part("example\n" * 500 + "\nThe question?")
    assert isinstance(part, ReportPart)
    assert part.head is not None
    assert part.text.endswith("The question?")
    assert len(part.text) < 2000


def test_images_become_reencoded_thumbnails(runs: list[Any]) -> None:
    data = picture() + b"<script>alert(1)</script>"
    digest = digest_of(data)
    assert write_media(runs[0].folder, digest, data)
    shown = MediaEmbedder().embed(runs[0], "image", digest, "a.png")
    kind, _, encoded = shown["url"].partition(";base64,")
    assert kind == "data:image/jpeg"
    small = base64.b64decode(encoded)
    assert b"script" not in small
    from PIL import Image

    assert max(Image.open(io.BytesIO(small)).size) == 360


@pytest.mark.parametrize("data", [b"<svg onload=alert(1)>", b"", b"\x89PNG\r\n\x1a\n broken", b"MZ\x00"])
def test_unreadable_images_are_listed_by_name(runs: list[Any], data: bytes) -> None:
    digest = digest_of(data)
    write_media(runs[0].folder, digest, data)
    shown = MediaEmbedder().embed(runs[0], "image", digest, "evil")
    assert shown["url"] == ""
    assert "evil" in shown["caption"]
    assert make_thumbnail(data) is None


@pytest.mark.parametrize("digest", ["../../journal.sqlite", "/etc/passwd", "", "a" * 64])
def test_missing_media_are_listed_by_name(runs: list[Any], digest: str) -> None:
    assert MediaEmbedder().embed(runs[0], "image", digest, "x")["url"] == ""


def test_the_command_writes_a_file(
    runs: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    target = tmp_path / "deep" / "report.html"
    assert (
        run_command_line(
            ["report", str(runs[0].folder), "-o", str(target), "--documents", "2", "--title", "Mine <b>"]
        )
        == 0
    )
    assert "<title>Mine &lt;b&gt;</title>" in target.read_text("utf-8")
    assert "wrote" in capsys.readouterr().err
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--documents", "-1"], "cannot show -1 documents"),
        (["--by", "nothing"], "no scored document has the field `nothing`"),
        (["-o", "/"], "is a folder"),
    ],
)
def test_invalid_arguments_are_explained(
    runs: list[Any], workspace: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    pytest.importorskip("plotly")
    assert run_command_line(["report", str(runs[0].folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert list(workspace.iterdir()) == []


def test_a_missing_plotly_is_reported_before_the_run_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.viewer.report import html_page as module

    module.read_plotly_script.cache_clear()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as caught:
        module.read_plotly_script()
    assert format_install_command("viewer") in caught.value.hint
    module.read_plotly_script.cache_clear()


def test_too_many_documents_are_an_error() -> None:
    with pytest.raises(InvalidOption, match="501"):
        ReportOptions(documents=501)


def test_a_missing_browser_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from assay.viewer.report import find_browser

    monkeypatch.setenv("ASSAY_CHROMIUM", str(tmp_path / "nothing"))
    with pytest.raises(MissingPackage, match="no browser"):
        find_browser()
    monkeypatch.delenv("ASSAY_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage) as caught:
        find_browser()
    assert re.search(r"no browser found", caught.value.what)
    assert "print the HTML file" in caught.value.hint


def test_a_run_without_scores_says_so(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from assay.viewer.report import render_page

    task = str(write_task(tmp_path))
    run = assay.run(
        model=make_model(), tasks=[task], no_cache=True, predict_only=True, output_path=str(tmp_path / "out")
    )
    page = render_page(build_report([run], ReportOptions(documents=2)))
    run.close()
    assert "no document was scored" in page
    assert "skipped" in page


def test_runs_with_nothing_in_common_are_shown_without_a_comparison(runs: list[Any], tmp_path: Path) -> None:
    task = str(write_task(tmp_path, "other"))
    run = assay.run(
        model=make_model(name="third"), tasks=[task], no_cache=True, output_path=str(tmp_path / "out")
    )
    report = build_report([runs[1], run], ReportOptions(documents=2))
    run.close()
    (comparison,) = report.comparisons
    assert (comparison["rows"], comparison["charts"]) == ([], [])
    assert "in common" in comparison["notes"][0][1] or "different tasks" in comparison["notes"][0][1]


def test_short_audio_is_embedded_and_long_audio_is_named(runs: list[Any]) -> None:
    for seconds, playable in ((0.1, True), (60.0, False)):
        stream = io.BytesIO()
        with wave.open(stream, "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(b"\0\0" * int(8000 * seconds))
        data = stream.getvalue()
        write_media(runs[0].folder, digest_of(data), data)
        shown = MediaEmbedder().embed(runs[0], "audio", digest_of(data), "a.wav")
        assert shown["url"].startswith("data:audio/wav;base64,") == playable
        assert "a.wav" in shown["caption"]


def test_a_video_is_shown_as_its_first_frame(runs: list[Any]) -> None:
    data = picture("blue", 64)
    assert write_media(runs[0].folder, f"{'b' * 64}-0", data)
    assert (
        MediaEmbedder().embed(runs[0], "video", "b" * 64, "clip")["url"].startswith("data:image/png;base64,")
    )
