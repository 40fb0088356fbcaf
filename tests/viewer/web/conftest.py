"""Two runs and a viewer, shared by all tests of the pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.viewer.web.viewer_server import Viewer

    from assay.store.runs.run import Run

collect_ignore_glob = (
    [] if all(find_spec(name) for name in ("plotly", "starlette", "uvicorn")) else ["test_*.py"]
)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    from tests.viewer.web.sample_runs import make_runs

    folder = tmp_path_factory.mktemp("viewed")
    before = os.environ.get("ASSAY_HOME")
    os.environ["ASSAY_HOME"] = str(folder / "home")
    try:
        return make_runs(folder)
    finally:
        if before is None:
            del os.environ["ASSAY_HOME"]
        else:
            os.environ["ASSAY_HOME"] = before


@pytest.fixture(scope="session")
def folder(runs: tuple[Run, Run]) -> Path:
    return runs[0].folder.parent


@pytest.fixture(scope="session")
def viewer(folder: Path) -> Iterator[Viewer]:
    from tests.viewer.web.viewer_server import serve_runs

    with serve_runs([folder]) as served:
        yield served


@pytest.fixture(scope="session")
def reading_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.viewer.web.reading_runs import make_reading_run

    folder = tmp_path_factory.mktemp("read")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        return make_reading_run(folder)


@pytest.fixture(scope="session")
def group_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.viewer.web.reading_runs import make_group_run

    folder = tmp_path_factory.mktemp("group")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        return make_group_run(folder)


@pytest.fixture(scope="session")
def reading_viewer(reading_run: Run, group_run: Run) -> Iterator[Viewer]:
    from tests.viewer.web.viewer_server import serve_runs

    with serve_runs([reading_run.folder.parent, group_run.folder.parent]) as served:
        yield served


@pytest.fixture(scope="session")
def browser_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(browser_profile: Path) -> Iterator[Any]:
    from tests.viewer.web.browser_visit import open_browser

    with open_browser(browser_profile) as opened:
        yield opened


@pytest.fixture
def visit(browser: Any, viewer: Viewer) -> Iterator[Any]:
    from tests.viewer.web.browser_visit import Visit

    opened = Visit(browser, viewer)
    yield opened
    opened.check()
    opened.close()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Return the folder for screenshots."""
    folder = Path(os.environ.get("ASSAY_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
