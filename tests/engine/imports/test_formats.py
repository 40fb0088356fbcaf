"""Detection of the formats of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.errors import UnknownName
from assay.engine.imports.formats import RESULT_FORMATS, detect_format, get_format
from assay.engine.imports.importer import import_results


def test_every_format_has_a_reader() -> None:
    for known in RESULT_FORMATS.values():
        reader = known.load_reader()
        assert callable(reader.detect) and callable(reader.read)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[1, 2]", b'{"results": 3}', b"\x80\x04}."])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "results_a.json", "a.csv", "a.parquet", "a.xlsx", "a"])
def test_other_files_have_no_format(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert detect_format(tmp_path / name) is None
    assert detect_format(tmp_path) is None


def test_error_lists_all_formats(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="contains no results that Assay can read") as caught:
        import_results(tmp_path)
    assert all(f"\n  {name}: " in caught.value.hint for name in RESULT_FORMATS)


def test_unknown_format_is_an_error() -> None:
    with pytest.raises(UnknownName, match="unknown result format `helmet`"):
        get_format("helmet")
