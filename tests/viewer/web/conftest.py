"""Two runs and a viewer, shared by all tests of the pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

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
