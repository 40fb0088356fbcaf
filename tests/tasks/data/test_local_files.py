from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.tasks.data.local_files import read_files


@pytest.mark.parametrize("format", ["jsonl", "json", "csv", "two files"])
def test_selected_rows_of_a_file_stay_in_the_file(tmp_path: Path, format: str) -> None:
    lines = [json.dumps({"n": number, "list": [number]}) for number in range(1000)]
    contents = {
        "jsonl": {"x.jsonl": "\n".join(lines)},
        "json": {"x.json": f"[{','.join(lines)}]"},
        "csv": {"x.csv": "n\n" + "".join(f"{number}\n" for number in range(1000))},
        "two files": {"x.json": "\n".join(lines[:400]), "y.json": f"[{','.join(lines[400:])}]"},
    }[format]
    for name, content in contents.items():
        (tmp_path / name).write_text(content, "utf-8")
    rows = read_files([str(tmp_path / name) for name in contents]).deep_copy()
    odd = rows.filter(lambda row: row["n"] % 2)
    few = odd.select([2, 0, -1])
    assert [len(odd), odd[3]["n"], odd[-1]["n"], len(list(odd))] == [500, 7, 999, 500]
    assert [row["n"] for row in few] == [5, 1, 999]
    assert [row["n"] for row in odd[1:4]] == [3, 5, 7]
    if format != "csv":
        odd[0]["list"].append("changed")
        assert odd[0]["list"] == rows[1]["list"] == [1]
    with pytest.raises(IndexError):
        rows.select([1000])
