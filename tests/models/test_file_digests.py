"""Hashes of model files."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.models.file_digests import hash_file, hash_files, hash_folder


def test_weights_are_hashed_by_content(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, content in zip(paths, (b"1", b"2", b"1"), strict=True):
        path.write_bytes(content)
    a, b, c = paths
    assert hash_files(a) == hash_files(c) != hash_files(b)
    assert hash_files(a, b) != hash_files(b, a)
    with pytest.raises(DatasetError, match="cannot read weights"):
        hash_files(tmp_path / "missing")


def test_a_folder_hash_depends_on_names_and_contents_of_matching_files(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"1")
    (tmp_path / "notes.txt").write_bytes(b"x")
    before = hash_folder(tmp_path, ["*.bin"])
    (tmp_path / "notes.txt").write_bytes(b"y")
    assert hash_folder(tmp_path, ["*.bin"]) == before
    (tmp_path / "a.bin").rename(tmp_path / "b.bin")
    assert hash_folder(tmp_path, ["*.bin"]) != before
    assert hash_folder(tmp_path, ["*.pt"]) == ""


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot read model file"):
        hash_file(tmp_path / "missing")
