"""A damaged write-ahead log is told from one that a kill has cut."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from assay.store.integrity.write_ahead_log import count_unreadable_frames

FRAME_BYTES = 24 + 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database whose records are in its write-ahead log."""
    with closing(sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (a)")
        for number in range(20):
            connection.execute("INSERT INTO t VALUES (?)", ("text " * number * 200,))
        for name in ("x.sqlite", "x.sqlite-wal"):
            shutil.copy(tmp_path / name, tmp_path / name.replace("x", "y", 1))
    return tmp_path / "y.sqlite"


def change(path: Path, place: int) -> None:
    wal = path.with_name(f"{path.name}-wal")
    data = bytearray(wal.read_bytes())
    data[place] ^= 8
    wal.write_bytes(data)


def count_frames(path: Path) -> int:
    return (path.with_name(f"{path.name}-wal").stat().st_size - 32) // FRAME_BYTES


def test_an_intact_log_is_read_whole(path: Path) -> None:
    assert count_unreadable_frames(path) == 0


def test_a_database_without_a_log_has_no_frames(tmp_path: Path) -> None:
    assert count_unreadable_frames(tmp_path / "x.sqlite") == 0


@pytest.mark.parametrize("place", [0, 9, 20, 25], ids=["magic", "page size", "salt", "checksum"])
def test_a_damaged_header_hides_the_log(path: Path, place: int) -> None:
    change(path, place)
    assert count_unreadable_frames(path) > 0


@pytest.mark.parametrize("frame", [0, 7, -1])
@pytest.mark.parametrize("place", [3, 17, 24, 4000])
def test_a_damaged_frame_hides_those_after_it(path: Path, frame: int, place: int) -> None:
    frame %= count_frames(path)
    change(path, 32 + frame * FRAME_BYTES + place)
    assert count_unreadable_frames(path) == count_frames(path) - frame


def test_a_log_that_a_kill_cut_is_not_damaged(path: Path) -> None:
    wal = path.with_name(f"{path.name}-wal")
    wal.write_bytes(wal.read_bytes()[: -FRAME_BYTES - 100])
    assert count_unreadable_frames(path) == 0


def test_frames_of_an_earlier_log_are_ignored(path: Path) -> None:
    wal = path.with_name(f"{path.name}-wal")
    data = bytearray(wal.read_bytes())
    data[-FRAME_BYTES + 8] ^= 1  # another salt
    wal.write_bytes(data)
    assert count_unreadable_frames(path) == 0
