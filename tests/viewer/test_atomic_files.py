"""Atomic writing of output files."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.errors import OutputError
from assay.viewer.atomic_files import write_atomically


def test_a_file_is_replaced_and_its_folder_is_created(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_atomically(path, "first")
    write_atomically(path, "half \ud800")
    assert path.read_text("utf-8") == "half \\ud800"
    assert [file.name for file in path.parent.iterdir()] == ["file.txt"]


def test_a_folder_and_an_unwritable_path_are_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a folder"):
        write_atomically(tmp_path, b"")
    with pytest.raises(OutputError, match="cannot write"):
        write_atomically(tmp_path / "file" / "below", b"")
