"""Tables of other programs: xlsx, tsv and csv."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.engine.imports.spreadsheets import iterate_rows, read_header

NAMESPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
SHEET = f"""<?xml version="1.0"?><worksheet {NAMESPACE}><sheetData>
<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="inlineStr"><is><t>note</t></is></c></row>
<row r="2"><c r="A2"><v>3</v></c><c r="C2" t="str"><f>A1</f><v>text</v></c></row>
<row r="3"><c r="B3"><v>0.5</v></c><c r="C3" t="b"><v>1</v></c></row>
<row r="4"></row></sheetData></worksheet>"""
STRINGS = f"""<?xml version="1.0"?><sst {NAMESPACE}><si><t>index</t></si><si><r><t>sc</t></r><r><t>ore</t></r></si></sst>"""


def write_workbook(path: Path, sheet: str = SHEET, strings: str = STRINGS) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
        archive.writestr("xl/sharedStrings.xml", strings)
    return path


def test_cells_of_a_workbook_have_their_types(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "a.xlsx")
    assert read_header(path) == ["index", "score", "note"]
    assert list(iterate_rows(path)) == [{"index": 3, "note": "text"}, {"score": 0.5, "note": True}]


def test_quoted_cells_of_a_table_may_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('"index"\t"prediction"\n"1"\t"two\nlines, ""quoted"""\n')
    assert list(iterate_rows(path)) == [{"index": "1", "prediction": 'two\nlines, "quoted"'}]


@pytest.mark.parametrize(
    ("sheet", "strings"),
    [
        (SHEET[:-40], STRINGS),
        (SHEET, STRINGS[:-20]),
        (SHEET.replace('<v>1</v></c><c r="C1"', '<v>9</v></c><c r="C1"'), STRINGS),
        (SHEET.replace("<v>3</v>", "<v>three</v>"), STRINGS),
        (SHEET.replace('r="A2"', 'r="ZZZZZ2"'), STRINGS),
        (SHEET.replace("<worksheet", '<!DOCTYPE a [<!ENTITY b "bb">]><worksheet'), STRINGS),
    ],
    ids=["cut sheet", "cut strings", "missing string", "no number", "far column", "entities"],
)
def test_damaged_workbook_is_an_error(tmp_path: Path, sheet: str, strings: str) -> None:
    path = write_workbook(tmp_path / "a.xlsx", sheet, strings)
    with pytest.raises(DatasetError, match="not a valid workbook") as caught:
        list(iterate_rows(path))
    assert caught.value.where == str(path)


def test_truncated_archive_is_an_error(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "a.xlsx")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DatasetError, match="not a valid workbook"):
        list(iterate_rows(path))
    assert read_header(path) == []
