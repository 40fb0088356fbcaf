"""The pages with plots: real downloads, both themes, three widths, reasons for missing data."""

from __future__ import annotations

import csv
import io
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.viewer.plots.plot_runs import make_plot_runs
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.viewer_server import Viewer, serve_runs

from assay.store.runs.run import Run
from assay.viewer.web.rendering import compute_static_version

Runs = tuple[Run, Run]


@pytest.fixture(scope="module")
def plot_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("plots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        return make_plot_runs(folder)


@pytest.fixture(scope="module")
def plots_viewer(plot_runs: Runs) -> Iterator[Viewer]:
    with serve_runs([plot_runs[0].folder.parent]) as served:
        yield served


def test_the_page_of_a_run_links_to_its_plots(plots_viewer: Viewer, plot_runs: Runs) -> None:
    address = f"/runs/{plot_runs[0].id}/plots"
    assert f'href="{address}"' in plots_viewer.get_when_ready(f"/runs/{plot_runs[0].id}").text
    page = plots_viewer.get_when_ready(address).text
    shown, _, missing = page.partition('id="missing"')
    assert 'id="plot-histogram"' in shown and 'id="plot-score_by_length"' in shown
    assert "only tasks of type multiple_choice have them" in missing
    assert 'href="/matrix/history?task=sums"' in page


def test_a_task_of_choices_has_a_calibration(plots_viewer: Viewer, plot_runs: Runs) -> None:
    page = plots_viewer.get_when_ready(f"/runs/{plot_runs[0].id}/plots?task=choices&metric=99").text
    shown, _, missing = page.partition('id="missing"')
    assert "Expected calibration error 0.2000" in shown
    assert "The task compares log probabilities, so there are no response texts." in missing
    assert "the model does not report them" in missing


def test_two_runs_are_plotted_against_each_other(plots_viewer: Viewer, plot_runs: Runs) -> None:
    query = "&".join(f"run={run.id}" for run in plot_runs)
    assert "/compare/plots?" in plots_viewer.get_when_ready(f"/compare?{query}").text
    page = plots_viewer.get_when_ready(f"/compare/plots?{query}&task=sums").text
    assert 'id="plot-task_scatter"' in page and 'id="plot-scatter"' in page
    assert "of second-model is better on 8, worse on 6 and equal on 26" in page
    swapped = plots_viewer.get_when_ready(f"/compare/plots?{query}&baseline={plot_runs[1].id}").text
    assert "of first-model is better on 6, worse on 8" in swapped
    form = swapped.partition('<form class="filters small"')[2].partition("</form>")[0]
    sent = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    submitted = plots_viewer.get_when_ready(f"/compare/plots?{urlencode(sent)}&task=sums").text
    assert "of first-model is better on 6, worse on 8" in submitted
    metric = plots_viewer.get_when_ready(f"/compare/plots?{query}&metric=exact_match").text
    assert '<input type="hidden" name="metric" value="exact_match">' in metric
    assert plots_viewer.get(f"/compare/plots?run={plot_runs[0].id}").status == 404
    assert plots_viewer.get("/runs/nothing/plots").status == 404


@pytest.mark.browser
def test_a_plot_downloads_as_svg_png_and_csv(
    browser: Any, plots_viewer: Viewer, plot_runs: Runs, tmp_path: Path
) -> None:
    visit = Visit(browser, plots_viewer)
    page = visit.open(f"/runs/{plot_runs[0].id}/plots?task=choices")
    figure = page.locator("#plot-calibration figure.chart.drawn")
    contents = {}
    for kind in ("SVG", "PNG", "CSV"):
        with page.expect_download() as started:
            figure.locator(f"button >> text={kind}").click()
        assert started.value.suggested_filename == f"calibration.{kind.lower()}"
        started.value.save_as(tmp_path / kind)
        contents[kind] = (tmp_path / kind).read_bytes()
    assert contents["SVG"].startswith(b"<svg") and b"perfect calibration" in contents["SVG"]
    assert contents["PNG"][:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", contents["PNG"][16:24])
    assert width >= 1440 and height == 2 * 460
    rows = list(csv.DictReader(io.StringIO(contents["CSV"].decode())))
    assert [row["documents"] for row in rows] == ["20", "20"]
    assert [float(row["accuracy"]) for row in rows] == [0.75, 0.5]
    texts = ["=1+1", "+1", "-1", "@x", "\t=1+1", "\r=1+1", "a=1"]
    page.evaluate(
        """async ([script, texts]) => {
          const { buildDownloads } = await import(script);
          const table = { columns: ["text"], rows: texts.map((text) => [text]) };
          document.querySelector("main").append(buildDownloads({ title: "Texts", table }));
        }""",
        [f"/static/{compute_static_version()}/chart_downloads.js", texts],
    )
    with page.expect_download() as started:
        page.click("[aria-label='Download Texts as CSV']")
    started.value.save_as(tmp_path / "texts")
    lines = list(csv.reader(io.StringIO((tmp_path / "texts").read_bytes().decode(), newline="")))
    assert [line[0] for line in lines[1:]] == [*(f"'{text}" for text in texts[:-1]), "a=1"]
    visit.check()
    visit.close()


@pytest.mark.browser
@pytest.mark.parametrize("of_two_runs", [False, True], ids=["run", "comparison"])
def test_plots_fit_and_are_accessible(
    browser: Any, plots_viewer: Viewer, plot_runs: Runs, of_two_runs: bool
) -> None:
    visit = Visit(browser, plots_viewer, color_scheme="light", viewport={"width": 1440, "height": 900})
    query = "&".join(f"run={run.id}" for run in plot_runs)
    page = visit.open(
        f"/compare/plots?{query}" if of_two_runs else f"/runs/{plot_runs[0].id}/plots?task=choices"
    )
    page.wait_for_selector(".plots section:last-child figure.chart.drawn")
    assert page.locator("figure.chart:not(.drawn)").count() == 0
    page.locator("details.plot-data summary").first.click()
    page.wait_for_selector("details.plot-data[open] table td")
    check_accessibility(page)
    page.keyboard.press("t")
    page.wait_for_selector("html[data-theme=dark]")
    for width in (1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        wait_until(page, f"document.documentElement.scrollWidth <= {width}")
    check_accessibility(page)
    visit.check()
    visit.close()


@pytest.mark.browser
def test_another_task_is_chosen_and_back_returns(browser: Any, plots_viewer: Viewer, plot_runs: Runs) -> None:
    visit = Visit(browser, plots_viewer)
    page = visit.open(f"/runs/{plot_runs[0].id}")
    page.click(".actions >> text=Plots")
    page.wait_for_selector("#plot-score_by_length figure.chart.drawn")
    page.select_option("select[name=task]", "choices")
    page.wait_for_selector("#plot-calibration figure.chart.drawn")
    page.go_back()
    page.wait_for_selector("#plot-score_by_length figure.chart.drawn")
    page.keyboard.press("u")
    page.wait_for_selector("table[data-scores]")
    visit.check()
    visit.close()
