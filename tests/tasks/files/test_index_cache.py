"""Tests of the memory of whole task roots."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.home import assay_home
from assay.tasks.files import index as index_module
from assay.tasks.files import index_cache
from assay.tasks.files.index import TaskIndex
from assay.tasks.files.index_cache import NamingCache

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The roots that were read file by file."""
    seen: list[Path] = []

    class Counted(NamingCache):
        def __init__(self, root: Path) -> None:
            seen.append(root)
            super().__init__(root)

    monkeypatch.setattr(index_module, "NamingCache", Counted)
    return seen


def rewrite(path: Path, text: str) -> None:
    """Write a file so that its time of change is another, however coarse the clock is."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.fixture(params=["this process", "another process"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the tasks again: this process, which has the snapshots in memory, or another one, which has the files."""
    if request.param == "another process":
        monkeypatch.setattr(index_cache, "_MAX_ROOTS_IN_MEMORY", 0)


@pytest.mark.usefixtures("reader")
def test_an_unchanged_root_is_known_without_looking_into_its_files(
    write: Write, tmp_path: Path, readings: list[Path]
) -> None:
    write("a.yaml", "include: base\ntask: a\ntag: [small]\n")
    write("base", "tag: [large]\n")
    write("all.yaml", "group: all\ntask: [a, {task: b}]\n")
    first = TaskIndex.build([tmp_path])
    second = TaskIndex.build([tmp_path])
    assert readings == [tmp_path]
    assert second.entries == first.entries
    assert second.entries["all"].members == ("a", "b")


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("change", ["a task file", "a template", "one more file", "one file less"])
def test_any_change_is_noticed(write: Write, tmp_path: Path, readings: list[Path], change: str) -> None:
    task = write("a.yaml", "include: base\n")
    base = write("base", "task: old\n")
    other = write("other.yaml", "task: other\n")
    assert TaskIndex.build([tmp_path]).names() == ["old", "other"]
    match change:
        case "a task file":
            rewrite(task, "include: base\ntask: mine\n")
            expected = ["mine", "other"]
        case "a template":
            rewrite(base, "task: new\n")
            expected = ["new", "other"]
        case "one more file":
            write("deep/more.yaml", "task: more\n")
            expected = ["more", "old", "other"]
        case _:
            other.unlink()
            expected = ["old"]
    assert TaskIndex.build([tmp_path]).names() == expected
    assert readings == [tmp_path, tmp_path]


def test_what_is_wrong_is_said_every_time(write: Write, tmp_path: Path) -> None:
    write("a.yaml", "task: a\n")
    write("b.yaml", "include: nowhere\ntask: b\n")
    for _ in range(2):
        index = TaskIndex.build([tmp_path])
        assert index.names() == ["a"]
        assert [path.name for path, _ in index.broken] == ["b.yaml"]


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("damage", [b"", b"{", b'{"format": 1}', b"[]", b"\xff\xfe"])
def test_a_damaged_snapshot_is_no_obstacle(write: Write, tmp_path: Path, damage: bytes) -> None:
    write("a.yaml", "task: a\n")
    TaskIndex.build([tmp_path])
    (snapshot,) = (assay_home() / "index").glob("*.snapshot.json")
    snapshot.write_bytes(damage)
    assert TaskIndex.build([tmp_path]).names() == ["a"]


def test_the_same_folder_by_another_name_is_read_anew(write: Write, tmp_path: Path) -> None:
    write("real/a.yaml", "task: a\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    TaskIndex.build([tmp_path / "real"])
    assert TaskIndex.build([tmp_path / "link"]).entries["a"].path == tmp_path / "link" / "a.yaml"
