"""Paths in lockfiles."""

from __future__ import annotations

from pathlib import Path

from assay.engine.lockfiles.portable_paths import PortablePaths


def test_a_path_in_the_folder_is_relative_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    paths = PortablePaths(tmp_path)
    assert paths.to_portable(str(tmp_path / "tasks")) == "./tasks"
    assert Path(paths.to_local("./tasks")).resolve() == tmp_path / "tasks"
    assert paths.to_local("org/name") == "org/name" and paths.to_local(3) == 3


def test_a_path_elsewhere_is_not_portable(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    assert PortablePaths(tmp_path / "locks").to_portable(str(tmp_path / "tasks")) is None


def test_a_path_in_the_same_checkout_is_portable(tmp_path: Path) -> None:
    for name in (".git", "locks", "tasks"):
        (tmp_path / name).mkdir()
    paths = PortablePaths(tmp_path / "locks")
    assert paths.to_portable(str(tmp_path / "tasks")) == "../tasks"
    assert Path(paths.to_local("../tasks")).resolve() == tmp_path / "tasks"


def test_values_that_name_no_file_are_no_paths(tmp_path: Path) -> None:
    assert PortablePaths.is_path(str(tmp_path)) and PortablePaths.is_path("/no/such/model")
    assert not any(map(PortablePaths.is_path, ["org/model", "float32", "", 3, None, "a\nb", "x" * 5_000]))
