"""Members of zip files, compressed with Zstandard or not."""

from __future__ import annotations

import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest

from assay.core.errors import DatasetError, MissingPackage
from assay.engine.imports.zip_members import ZipReader

RECORDED = Path(__file__).parent / "recorded" / "sums.eval"


def test_members_with_zstandard_are_read() -> None:
    pytest.importorskip("zstandard")
    with ZipReader(RECORDED) as archive:
        assert "samples/tool_epoch_2.json" in archive.names
        assert archive.read("header.json").startswith(b'{"version"')


def test_a_wrong_checksum_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    data = RECORDED.read_bytes()
    place = data.index(b"samples/tool_epoch_1.json") + 200  # inside the compressed member
    broken = tmp_path / "broken.eval"
    broken.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
    with ZipReader(broken) as archive, pytest.raises(DatasetError, match="is damaged"):
        archive.read("samples/tool_epoch_1.json")


def test_a_member_larger_than_stated_is_an_error(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    content = b"x" * 1_000_000
    path = tmp_path / "bomb.eval"
    packed = zstandard.ZstdCompressor().compress(content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", packed)
    data = path.read_bytes()
    entry, central = data.index(b"PK\x03\x04"), data.index(b"PK\x01\x02")
    altered = bytearray(data)
    altered[entry + 8 : entry + 10] = altered[central + 10 : central + 12] = (93).to_bytes(2, "little")
    path.write_bytes(altered)
    with ZipReader(path) as reader, pytest.raises(DatasetError, match="checksum is wrong"):
        reader.read("a.json")


def write_member(path: Path, content: bytes, claimed: int, method: int) -> Path:
    """Write a zip file whose only member `a.json` claims a size."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", content)
    altered = bytearray(path.read_bytes())
    entry, central = altered.index(b"PK\x03\x04"), altered.index(b"PK\x01\x02")
    for at in (entry + 8, central + 10):
        altered[at : at + 2] = method.to_bytes(2, "little")
    for at in (entry + 22, central + 24):
        altered[at : at + 4] = claimed.to_bytes(4, "little")
    path.write_bytes(altered)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
@pytest.mark.parametrize("claimed", [0xFFFFFFF0, 100 << 20])
def test_members_that_claim_too_much_are_refused_before_they_are_read(
    tmp_path: Path, method: int, claimed: int
) -> None:
    path = write_member(tmp_path / "bomb.eval", b"x" * 1000, claimed, method)
    with ZipReader(path) as reader, pytest.raises(DatasetError, match=r"`a.json` is too large"):
        reader.read("a.json")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 93])
def test_members_use_no_more_memory_than_they_claim(tmp_path: Path, method: int) -> None:
    content = bytes(30_000_000)
    if method == 93:
        packed = pytest.importorskip("zstandard").ZstdCompressor().compress(content)
    else:
        packed = zlib.compress(content, 9)[2:-4]
    path = write_member(tmp_path / "bomb.eval", packed, 1000, method)
    tracemalloc.start()
    try:
        with ZipReader(path) as reader, pytest.raises(DatasetError, match="is damaged"):
            reader.read("a.json")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_too_little_memory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> bytes:
        raise MemoryError

    path = write_member(tmp_path / "large.eval", b"x", 1, zipfile.ZIP_STORED)
    monkeypatch.setattr(zipfile.ZipExtFile, "read", fail)
    with ZipReader(path) as reader, pytest.raises(DatasetError, match="not enough memory"):
        reader.read("a.json")


def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    cut = tmp_path / "cut.eval"
    cut.write_bytes(RECORDED.read_bytes()[:5000])
    with pytest.raises(DatasetError, match="not a complete zip file"):
        ZipReader(cut)


def test_missing_members_and_the_missing_package_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with ZipReader(RECORDED) as archive:
        with pytest.raises(DatasetError, match="no member `other`"):
            archive.read("other")
        with pytest.raises(
            MissingPackage,
            match=r"^reading logs that are compressed with Zstandard needs the package `zstandard`",
        ):
            archive.read("header.json")
