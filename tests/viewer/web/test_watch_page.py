from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.training_folders import WatchedTraining, write_checkpoint
from tests.viewer.web.browser_visit import check_pages
from tests.viewer.web.viewer_server import Viewer, serve_runs

from assay.store.runs.watches import CheckpointRecord, Watch


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> WatchedTraining:
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        made = WatchedTraining(folder)
        for step, wrong in {10: 20, 20: 4, 30: 30}.items():
            write_checkpoint(made.checkpoints, step, range(wrong))
        made.build_watcher(order="oldest").run()
    return made


@pytest.fixture(scope="module")
def watched(training: WatchedTraining) -> Iterator[Viewer]:
    with serve_runs([training.watch.run_folder]) as served:
        yield served


@pytest.fixture
def copied(training: WatchedTraining, tmp_path: Path) -> Watch:
    """A copy of the watch, for a test that changes it."""
    folder = tmp_path / training.watch.run_folder.name
    shutil.copytree(training.watch.run_folder, folder)
    return Watch(folder / training.watch.folder.name)


@pytest.fixture
def served_copy(copied: Watch) -> Iterator[Viewer]:
    with serve_runs([copied.run_folder]) as served:
        yield served


def test_only_watch_is_shown_at_once(watched: Viewer) -> None:
    answer = watched.get("/watch")
    assert answer.status == 303 and answer.headers["location"] == "/watch/watch-test"


def test_page_shows_the_curve_the_best_checkpoint_and_the_regression(watched: Viewer) -> None:
    page = watched.get("/watch/watch-test").text
    assert "best checkpoint-20" in page
    assert "<b>Regression.</b> sums: exact_match of step 30 is -65.0 points" in page
    assert page.count("/documents?task=sums") == 3
    chart = page.partition('<script type="application/json">')[2].partition("</script>")[0]
    assert json.loads(chart)["light"]["data"][0]["x"] == [10, 20, 30]
    assert 'aria-current="page">Training' in page


@pytest.mark.browser
def test_watches_are_accessible(browser: Any, watched: Viewer) -> None:
    check_pages(browser, watched, ["/watch/watch-test"])


def test_page_refreshes_when_a_checkpoint_has_an_outcome(copied: Watch, served_copy: Viewer) -> None:
    before = json.loads(served_copy.get("/watch/watch-test/state").text)["signature"]
    page = served_copy.get("/watch/watch-test").text
    assert f'data-signature="{before}"' in page and "watch.js" in page
    hostile = CheckpointRecord(
        name="checkpoint-40", step=40, outcome="failed", reason="<script>alert(1)</script>"
    )
    copied.write_record(hostile)
    assert json.loads(served_copy.get("/watch/watch-test/state").text)["signature"] != before
    page = served_copy.get("/watch/watch-test").text
    assert "failed: &lt;script&gt;" in page and "<script>alert" not in page


def test_list_shows_several_watches(copied: Watch, served_copy: Viewer) -> None:
    other = Watch(copied.run_folder / "watch-other")
    other.write_settings(copied.read_settings())
    page = served_copy.get("/watch").text
    assert "/watch/watch-test" in page and "/watch/watch-other" in page
    assert "No checkpoint is evaluated yet" in served_copy.get("/watch/watch-other").text


@pytest.mark.parametrize("key", ["watch-none", "..", "%2e%2e%2fsecret"])
def test_unknown_watch_is_not_found(watched: Viewer, key: str) -> None:
    assert watched.get(f"/watch/{key}").status == 404


def test_folder_without_watches_says_what_to_do(tmp_path: Path) -> None:
    with serve_runs([tmp_path]) as served:
        assert "assay watch CHECKPOINTS/" in served.get("/watch").text
