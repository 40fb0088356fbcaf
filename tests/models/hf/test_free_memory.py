"""Free memory includes cached files."""

from __future__ import annotations

from pathlib import Path

from assay.models.hf.free_memory import find_free_bytes


def test_cached_files_count_as_free(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 1000 kB\nMemFree:  10 kB\nMemAvailable:     900 kB\nCached: 890 kB\n")
    assert find_free_bytes(path) == 900 << 10


def test_other_systems_report_free_pages(tmp_path: Path) -> None:
    found = find_free_bytes(tmp_path / "missing")
    assert found is None or found > 0
