"""Snapshots: equal files have equal ids, contents are stored once, damage is noticed, diffs are bounded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from assay.sandboxes.snapshots import FileEntry, SnapshotError, SnapshotStore, diff_snapshots


def make_file(store: SnapshotStore, path: str, content: bytes, mode: int = 0o644) -> FileEntry:
    return FileEntry(path, "file", mode, len(content), store.add_content(content))


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


def test_the_id_depends_on_the_files_and_not_on_their_order_or_times(store: SnapshotStore) -> None:
    a, b = make_file(store, "a", b"1"), make_file(store, "b", b"2")
    name = store.add_snapshot([a, b])
    assert store.add_snapshot([replace(b, modified_ns=7), a]) == name
    assert store.add_snapshot([a, replace(b, mode=0o755)]) != name
    assert [entry.path for entry in store.read_snapshot(name)] == ["a", "b"]


def test_equal_contents_are_stored_once(store: SnapshotStore, tmp_path: Path) -> None:
    for name in "abc":
        make_file(store, name, b"same")
    assert len(list(tmp_path.rglob("blobs/*/*"))) == 1


@pytest.mark.parametrize("name", ["0" * 32, "../../etc/passwd", ""])
def test_an_unknown_snapshot_is_an_error(store: SnapshotStore, name: str) -> None:
    with pytest.raises(SnapshotError, match="snapshot"):
        store.read_snapshot(name)


def test_damage_is_noticed(store: SnapshotStore, tmp_path: Path) -> None:
    entry = make_file(store, "a", b"content")
    name = store.add_snapshot([entry])
    next(tmp_path.rglob("blobs/*/*")).write_bytes(b"other")
    with pytest.raises(SnapshotError, match="`a` is damaged"):
        store.read_content(entry)
    next(tmp_path.rglob("blobs/*/*")).unlink()
    with pytest.raises(SnapshotError, match="`a` is missing"):
        store.read_content(entry)
    tree = next(tmp_path.rglob("trees/*"))
    tree.write_text(tree.read_text().replace('"a"', '"b"'))
    with pytest.raises(SnapshotError, match="is damaged"):
        store.read_snapshot(name)
    tree.write_text("[[")
    with pytest.raises(SnapshotError, match="is damaged"):
        store.read_snapshot(name)


def test_a_folder_of_the_machine_is_imported_without_following_links(
    store: SnapshotStore, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "run.sh").write_text("echo 1")
    (folder / "sub" / "run.sh").chmod(0o555)
    (folder / "out").symlink_to("/etc")
    if os.geteuid() == 0:
        os.chown(folder / "sub" / "run.sh", 12345, 12345)
    entries = {
        entry.path: entry
        for entry in store.read_snapshot(store.import_folder(folder, max_files=9, max_bytes=99))
    }
    assert {path: (entry.kind, entry.target) for path, entry in entries.items()} == {
        "out": ("link", "/etc"),
        "sub": ("folder", ""),
        "sub/run.sh": ("file", ""),
    }
    assert entries["sub/run.sh"].mode == 0o755
    with pytest.raises(SnapshotError, match="more than 2 files"):
        store.import_folder(folder, max_files=2, max_bytes=99)
    with pytest.raises(SnapshotError, match="5 bytes"):
        store.import_folder(folder, max_files=9, max_bytes=5)
    os.mkfifo(folder / "fifo")
    with pytest.raises(SnapshotError, match="neither a regular file"):
        store.import_folder(folder, max_files=9, max_bytes=99)


def diff(
    store: SnapshotStore, before: dict[str, bytes], after: dict[str, bytes], max_bytes: int = 64_000
) -> str:
    old, new = ([make_file(store, *item) for item in side.items()] for side in (before, after))
    return diff_snapshots(store, old, new, max_bytes=max_bytes)


def test_text_files_are_compared_by_line(store: SnapshotStore) -> None:
    text = "".join(f"{number}\n" for number in range(1, 21))
    changed = text.replace("12\n", "twelve\n")
    assert diff(store, {"a": text.encode()}, {"a": changed.encode()}).splitlines() == [
        "--- a/a", "+++ b/a", "@@ -9,7 +9,7 @@", " 9", " 10", " 11", "-12", "+twelve", " 13", " 14", " 15",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({}, {"a": b"x\n"}, "--- /dev/null\n+++ b/a\n@@ -0,0 +1,1 @@\n+x\n", id="a new file"),
        pytest.param({"a": b"x\n"}, {}, "--- a/a\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n", id="a removed file"),
        pytest.param({"a": b"x"}, {"a": b"x\n"}, "No newline at end of file\n+x\n", id="only a line break"),
        pytest.param({"a": b"\0"}, {"a": b"\0\1"}, "a: file of 1 bytes, mode 0644, ", id="binary files by size"),
        pytest.param({}, {"a\n+++ b/c": b""}, "a\\n+++ b/c: absent -> file of 0 bytes", id="a line break in a name"),
        pytest.param({"a": b"x"}, {"a": b"x"}, "", id="no change"),
    ],
)  # fmt: skip
def test_each_kind_of_change(
    store: SnapshotStore, before: dict[str, bytes], after: dict[str, bytes], expected: str
) -> None:
    found = diff(store, before, after).replace("@@ -0,0 +1 @@", "@@ -0,0 +1,1 @@")
    assert expected in found.replace("@@ -1 +0,0 @@", "@@ -1,1 +0,0 @@") if expected else found == ""


def test_changes_of_mode_kind_and_target_are_shown(store: SnapshotStore) -> None:
    file = make_file(store, "a", b"x")
    before = [file, FileEntry("l", "link", target="a"), FileEntry("p", "folder", 0o755)]
    after = [replace(file, mode=0o755), FileEntry("l", "link", target="b"), FileEntry("p", "fifo", 0o600)]
    assert diff_snapshots(store, before, after) == (
        'a: mode 0644 -> 0755\nl: link to "a" -> link to "b"\np: folder, mode 0755 -> fifo, mode 0600\n'
    )


def test_a_diff_is_cut(store: SnapshotStore) -> None:
    found = diff(store, {}, {f"{number}": b"line\n" * 50 for number in range(50)}, max_bytes=500)
    assert len(found) < 700
    assert "[the diff is cut at 500 characters; 49 of 50 changed files are incomplete or missing]" in found


def test_many_different_lines_are_not_compared_one_by_one(store: SnapshotStore) -> None:
    old = "".join(f"{number % 97} {number % 89}\n" for number in range(20_000)).encode()
    new = "".join(f"{number % 89} {number % 83}\n" for number in range(20_000)).encode()
    found = diff(store, {"a": old}, {"a": new}, max_bytes=1 << 20)
    assert found.startswith("--- a/a\n+++ b/a\n@@ -84,19917 +84,19917 @@\n-83 83\n")
    assert found.count("\n-") == 19917
