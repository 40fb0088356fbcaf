"""Models compared by their newest runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_model, write_task
from tests.viewer.comparison.conftest import ROWS, right_for

import assay
from assay.core.errors import UnknownName


def test_models_are_compared_by_their_newest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sums, more = (str(write_task(tmp_path, name, ROWS)) for name in ("sums", "more"))
    for model, tasks in (
        (make_model(right_for(*range(5)), name="old"), [sums, more]),
        (make_model(right_for(*range(10)), name="old"), [sums]),
        (make_model(right_for(*range(30)), name="new"), [sums, more]),
    ):
        assay.run(model=model, tasks=tasks, no_cache=True, seed=len(list(tmp_path.rglob("*.sqlite"))))
    found = assay.compare("model:old", "model:new")
    assert {row.task: row.first for row in found.rows} == {"sums": 0.25, "more": 0.125}
    assert {row.second for row in found.rows} == {0.75}
    assert any(one.kind == "settings" and "seed" in one.what for one in found.mismatches)
    with pytest.raises(UnknownName, match="called `none`") as error:
        assay.compare("model:old", "model:none")
    assert "new, old" in error.value.hint
