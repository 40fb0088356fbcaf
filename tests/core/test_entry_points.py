from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from assay.core.entry_points import find_entry_points, stamp_import_path


def install(folder: Path) -> None:
    (folder / "planted-1.0.dist-info").mkdir()
    (folder / "planted-1.0.dist-info" / "METADATA").write_text("Name: planted\nVersion: 1.0\n")
    (folder / "planted-1.0.dist-info" / "entry_points.txt").write_text(
        "[assay.metrics]\nplanted = planted:score\n"
    )


def list_metrics() -> set[str]:
    return {plugin.name for plugin in find_entry_points("assay.metrics")}


@pytest.mark.parametrize("name", ["", "absolute"])
def test_the_stamp_changes_with_packages_and_not_with_other_files(
    name: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stamp_import_path()
    monkeypatch.syspath_prepend(str(workspace) if name else "")
    assert stamp_import_path() == before
    (workspace / "assay-runs").mkdir()
    assert stamp_import_path() == before
    assert "planted" not in list_metrics()
    install(workspace)
    os.utime(workspace, ns=(1, 1))
    assert len(stamp_import_path()) == len(before) + 1
    assert "planted" in list_metrics()
    os.utime(workspace, ns=(2, 2))
    assert (str(workspace) if name else "", 2) in stamp_import_path()


def test_an_archive_can_contain_packages(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(workspace)
    with zipfile.ZipFile("packages.zip", "w") as archive:
        for path in workspace.glob("*.dist-info/*"):
            archive.write(path, path.relative_to(workspace))
    monkeypatch.syspath_prepend(str(workspace / "packages.zip"))
    assert "planted" in list_metrics()


def test_folders_that_do_not_exist_are_ignored(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stamp_import_path()
    monkeypatch.syspath_prepend(str(workspace / "missing"))
    assert stamp_import_path() == before
