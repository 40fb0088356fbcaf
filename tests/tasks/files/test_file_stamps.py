"""Listing task files without reading them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.tasks.files.file_stamps import list_yaml_files, read_headline, stamp_file


def write(path: Path, text: str = "task: a\n", *, time: int = 1) -> Path:
    """Write a file with a modification time in seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time, time))
    return path


def list_names(root: Path) -> list[str]:
    return [os.path.relpath(path, root) for path, _, _ in list_yaml_files(root)]


def test_files_are_listed_with_size_and_time_sorted_by_path(tmp_path: Path) -> None:
    write(tmp_path / "b.yaml", "task: bb\n", time=5)
    write(tmp_path / "a" / "c.yaml", "task: c\n", time=6)
    write(tmp_path / "a" / "helper.py")
    assert list_yaml_files(tmp_path) == [
        (str(tmp_path / "a" / "c.yaml"), 8, 6 * 10**9),
        (str(tmp_path / "b.yaml"), 9, 5 * 10**9),
    ]
    assert list_yaml_files(tmp_path) == [stamp_file(path) for path, _, _ in list_yaml_files(tmp_path)]


def test_a_folder_reached_by_two_links_is_listed_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(tmp_path / "outside" / "linked.yaml")
    write(root / "own.yaml")
    (root / "first").symlink_to(tmp_path / "outside")
    (root / "second").symlink_to(tmp_path / "outside")
    assert len(list_names(root)) == 2


@pytest.mark.parametrize("target", [".", "..", "folder"])
def test_links_into_the_tree_and_above_it_are_not_followed(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    write(root / "folder" / "own.yaml")
    (root / "link").symlink_to((root / target).resolve())
    assert list_names(root) == ["folder/own.yaml"]


def test_broken_links_and_folders_with_the_suffix_are_not_files(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").symlink_to(tmp_path / "missing")
    write(tmp_path / "folder.yaml" / "inner.yaml")
    assert list_names(tmp_path) == ["folder.yaml/inner.yaml"]


def test_a_missing_file_has_a_stamp_of_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "later.yaml")
    assert stamp_file(path) == (path, -1, -1)
    write(Path(path), "", time=3)
    assert stamp_file(path) == (path, 0, 3 * 10**9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("# Sums of two numbers\ntask: a\n", "Sums of two numbers"), ("task: a\n# late\n", ""), ("", "")],
)
def test_the_headline_is_a_comment_in_the_first_line(tmp_path: Path, text: str, expected: str) -> None:
    assert read_headline(str(write(tmp_path / "task.yaml", text))) == expected


def test_a_file_that_cannot_be_read_has_no_headline(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"# caf\xe9\n")
    assert read_headline(str(tmp_path / "latin.yaml")) == ""
    assert read_headline(str(tmp_path / "missing.yaml")) == ""
