"""Page checksums of a closed journal: a changed byte is detected, an unchanged file is not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.store.database.schema import JOURNAL_SCHEMA
from assay.store.integrity.page_checksums import (
    delete_page_checksums,
    find_damaged_pages,
    page_checksum_path,
    write_page_checksums,
)
from assay.store.journal.journal import JOURNAL_FILE, Journal

PAGE_BYTES = JOURNAL_SCHEMA.page_bytes


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    journal = Journal.open_for_writing(tmp_path)
    journal.set_facts({f"key{number}": "x" * 500 for number in range(100)}).result()
    journal.close()
    return tmp_path / JOURNAL_FILE


def test_a_closed_journal_has_checksums_and_no_damage(closed: Path) -> None:
    assert find_damaged_pages(closed) == []
    assert find_damaged_pages(closed, thorough=True) == []


def test_a_changed_byte_is_a_damaged_page(closed: Path) -> None:
    data = bytearray(closed.read_bytes())
    data[3 * PAGE_BYTES + 17] ^= 1
    closed.write_bytes(data)
    assert find_damaged_pages(closed) == [3]


def test_a_cut_file_lacks_pages(closed: Path) -> None:
    data = closed.read_bytes()
    closed.write_bytes(data[: PAGE_BYTES * 5 + 100])
    pages = len(data) // PAGE_BYTES
    assert find_damaged_pages(closed) == list(range(5, pages))


def test_a_byte_that_changed_without_a_trace_is_found_by_a_thorough_look(closed: Path) -> None:
    status = closed.stat()
    data = bytearray(closed.read_bytes())
    data[PAGE_BYTES + 900] ^= 1
    closed.write_bytes(data)
    os.utime(closed, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert find_damaged_pages(closed) == []
    assert find_damaged_pages(closed, thorough=True) == [1]


def test_a_journal_that_is_being_written_has_no_checksums(closed: Path) -> None:
    journal = Journal.open_for_writing(closed.parent)
    assert find_damaged_pages(closed) is None
    journal.set_facts({"more": 1}).result()
    journal.close()
    assert find_damaged_pages(closed, thorough=True) == []


def test_a_journal_with_an_active_reader_has_no_checksums(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path)
    journal.set_facts({"a": 1}).result()
    reader = Journal.open_readonly(tmp_path)
    assert reader.read_facts() == {"a": 1}
    journal.close()
    assert find_damaged_pages(tmp_path / JOURNAL_FILE) in (None, [])
    reader.close()
    assert Journal.open_readonly(tmp_path).read_facts() == {"a": 1}


def test_damaged_checksums_are_ignored(closed: Path) -> None:
    sums = page_checksum_path(closed)
    data = bytearray(sums.read_bytes())
    data[-10] ^= 1
    sums.write_bytes(data)
    assert find_damaged_pages(closed) is None
    delete_page_checksums(closed)
    delete_page_checksums(closed)
    assert find_damaged_pages(closed) is None


def test_checksums_that_cannot_be_written_are_omitted(closed: Path) -> None:
    delete_page_checksums(closed)
    page_checksum_path(closed).with_suffix(".sums-new").mkdir()
    assert not write_page_checksums(closed)
    assert find_damaged_pages(closed) is None
