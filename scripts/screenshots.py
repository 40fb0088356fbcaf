"""Take the screenshots in docs/images: the viewer and a report of a run of the embedded model.

.venv/bin/python scripts/screenshots.py docs/images
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WIDTH = 1180
COLOURS = 128
"""Colours of the images; a screenshot needs no more, and the files stay small."""


def main() -> None:
    """Run the quickstart, open the pages in Chromium and write the images."""
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ASSAY_HOME": f"{folder}/home", "ASSAY_LABELLER": "ada"}

        def assay(*words: str) -> None:
            command = [sys.executable, "-m", "assay", *words]
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)

        assay("run", "--no_cache")
        assay("report", "latest", "-o", "report.html")
        assay("run", "--no_cache", "--num_fewshot", "0", "-o", "zero-shot")
        assay(
            "run", "--no_cache", "--model", "oracle", "--tasks", "shopdesk", "--repeats", "1", "-o", "agents"
        )
        Path(folder, "live").mkdir()
        viewer = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "assay",
                "view",
                "assay-runs",
                "zero-shot",
                "agents",
                "live",
                "--no_browser",
            ],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert viewer.stdout is not None
            url = viewer.stdout.readline().strip()
            take_screenshots(url, f"file://{folder}/report.html", target)
            live_run = subprocess.Popen(
                [sys.executable, "-m", "assay", "run", "--no_cache", "--repeats", "60", "-o", "live"],
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                take_live_screenshot(url, target)
            finally:
                live_run.kill()
                live_run.wait()
        finally:
            viewer.terminate()
            viewer.wait()


def take_screenshots(viewer_url: str, report_url: str, target: Path) -> None:
    """Open the pages and write an image of each."""
    from playwright.sync_api import sync_playwright

    executable = os.environ.get("ASSAY_CHROMIUM") or shutil.which("chromium") or ""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 820})
        page.set_default_timeout(120_000)
        page.goto(viewer_url)
        page.click("tr[data-run] a.row >> nth=-1")  # the oldest run
        page.wait_for_load_state("networkidle")
        write_image(page, target / "viewer-run.png")
        run_url = page.url
        page.goto(f"{run_url}/plots?task=quickstart_facts")
        page.wait_for_selector(".plots section:last-child figure.drawn")
        page.set_viewport_size({"width": WIDTH, "height": 1330})
        write_image(page, target / "viewer-plots.png")
        write_image(page, target / "plot-calibration.png", "#plot-calibration figure .plot")
        page.set_viewport_size({"width": WIDTH, "height": 820})
        page.goto(run_url)
        page.click("a:has-text('documents') >> nth=0")
        page.wait_for_selector("#search:not([disabled])")
        page.wait_for_load_state("networkidle")
        page.set_viewport_size({"width": WIDTH, "height": 560})
        write_image(page, target / "viewer-documents.png")
        write_reading_images(page, target)
        write_matrix_and_agent_images(page, target)
        page.set_viewport_size({"width": 1200, "height": 1330})
        page.goto(report_url)
        page.wait_for_load_state("networkidle")
        page.wait_for_selector("html[data-charts=drawn]")
        write_image(page, target / "report.png")
        page.set_viewport_size({"width": 1200, "height": 1000})
        page.evaluate("document.querySelector('#plots').scrollIntoView({ behavior: 'instant' })")
        write_image(page, target / "report-plots.png")
        browser.close()


def write_reading_images(page: Any, target: Path) -> None:
    """Write images of a document beside the list, and of a document of two runs."""
    page.set_viewport_size({"width": 1280, "height": 760})
    page.goto(f"{page.url.partition('?')[0]}?where=wrong+and+length%3E0")
    page.click("table.documents a.row >> nth=0")
    page.wait_for_selector(".r-assistant .markdown")
    write_image(page, target / "viewer-document.png")
    page.click(".top nav >> text=Runs")
    for row in page.locator("tr[data-run]", has_text="quickstart").all():
        row.locator("td.pick input").check()
    page.set_viewport_size({"width": 1280, "height": 1080})
    page.click("#selection-compare")
    page.wait_for_selector(".answer-first")
    page.wait_for_selector("figure.chart.drawn")
    page.wait_for_load_state("networkidle")
    write_image(page, target / "viewer-compare.png")
    page.set_viewport_size({"width": 1280, "height": 760})
    page.click("table.flips a.row >> nth=0")
    page.wait_for_selector(".side-by-side")
    write_image(page, target / "viewer-flip.png")


def write_matrix_and_agent_images(page: Any, target: Path) -> None:
    """Write images of the matrix of two runs, and of a document of an agent."""
    page.click(".top nav >> text=Runs")
    runs = [
        row.get_attribute("data-run") for row in page.locator("tr[data-run]", has_text="quickstart").all()
    ]
    page.set_viewport_size({"width": WIDTH, "height": 560})
    page.goto(f"{page.url.rstrip('/')}/matrix?{'&'.join(f'run={run}' for run in runs)}")
    page.wait_for_selector("table.matrix")
    write_image(page, target / "viewer-matrix.png")
    page.click(".top nav >> text=Runs")
    page.click("tr[data-run] a.row >> text=oracle")
    page.click(".actions >> text=Documents")
    page.set_viewport_size({"width": 1280, "height": 1180})
    page.click("table.documents a.row >> nth=3")
    page.wait_for_selector(".r-assistant .markdown")
    page.wait_for_load_state("networkidle")
    page.evaluate("[...document.querySelectorAll('.round')].at(-1).scrollIntoView({ behavior: 'instant' })")
    page.evaluate("window.scrollBy(0, -70)")
    write_image(page, target / "viewer-agent.png")


def take_live_screenshot(viewer_url: str, target: Path) -> None:
    """Open the page of a run in progress and write an image of it."""
    from playwright.sync_api import sync_playwright

    executable = os.environ.get("ASSAY_CHROMIUM") or shutil.which("chromium") or ""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 720})
        page.set_default_timeout(120_000)
        page.goto(viewer_url)
        page.click("tr[data-run]:has(.s-running) a.row")
        page.wait_for_selector("[data-run-scores] tbody tr:nth-child(2)")
        write_image(page, target / "viewer-live.png")
        browser.close()


def write_image(page: Any, path: Path, selector: str = "") -> None:
    """Write what the page shows, or one element of it, with few colours."""
    from PIL import Image

    shown = page.locator(selector) if selector else page
    shown.screenshot(path=str(path))
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
