from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.tasks.data.indexed_files import ConcatenatedFiles
from assay.tasks.data.json_files import JsonLines


def test_concatenated_rows_are_found_in_their_files(tmp_path: Path) -> None:
    files = []
    for name, numbers in {"empty": [], "two": [0, 1], "none": [], "one": [2]}.items():
        (tmp_path / name).write_text("".join(json.dumps({"a": number}) + "\n" for number in numbers))
        files.append(JsonLines(tmp_path / name))
    rows = ConcatenatedFiles(files)
    assert [rows[at]["a"] for at in (0, 1, 2, -1)] == [0, 1, 2, 2]
    assert [row["a"] for row in rows] == [row["a"] for row in rows[0:]] == [0, 1, 2]
    assert [row["a"] for row in rows.read_rows([2, 0, 1])] == [2, 0, 1]
    assert rows.mean_row_bytes == len('{"a": 0}\n')
    with pytest.raises(IndexError):
        rows[3]
