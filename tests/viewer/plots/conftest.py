"""The runs of the plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from assay.store.runs.run import Run


@pytest.fixture(scope="session")
def plot_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    from tests.viewer.plots.plot_runs import make_plot_runs

    folder = tmp_path_factory.mktemp("plots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        return make_plot_runs(folder)
