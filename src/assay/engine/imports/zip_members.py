"""Members of zip files, also those compressed with Zstandard, which Python's `zipfile` cannot read before 3.14."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Self

from assay.core.errors import DatasetError, MissingPackage

__all__ = ["ZipReader"]

_ZSTANDARD = 93
_LOCAL_HEADER_BYTES = 30
_CHUNK_BYTES = 1 << 20
_MAX_MEMBER_BYTES = 512 << 20
_MAX_RATIO = 200
"""Larger members that are compressed more than this are refused."""

_MIN_RATIO_BYTES = 64 << 20
"""Smaller members can have any compression ratio."""


class ZipReader:
    """Reads the members of a zip file by name; of members with the same name, the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise DatasetError(
                f"the file is not a complete zip file: {error}", where=str(path), hint="copy it again"
            ) from None
        self._members = {info.filename: info for info in self._archive.infolist()}

    @property
    def names(self) -> list[str]:
        """The names of all members, in order."""
        return list(self._members)

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises:
            DatasetError: There is no such member, it is damaged, or it is too large.
            MissingPackage: It is compressed with Zstandard, and there is no package for it.
        """
        info = self._members.get(name)
        if info is None:
            raise DatasetError(f"the file has no member `{name}`", where=str(self.path))
        self._check_size(info)
        try:
            if info.compress_type == _ZSTANDARD:
                return self._read_zstandard(info)
            with self._archive.open(info) as opened:
                return _read_chunks(opened, info.file_size)
        except MemoryError:
            raise DatasetError(
                f"there is not enough memory for the member `{name}`", where=str(self.path)
            ) from None
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise DatasetError(f"the member `{name}` is damaged: {error}", where=str(self.path)) from None

    def _check_size(self, info: zipfile.ZipInfo) -> None:
        """Refuse members that need much memory: hostile files claim any size and compress well."""
        size = info.file_size
        ratio = size / max(info.compress_size, 1)
        if size > _MAX_MEMBER_BYTES or (size > _MIN_RATIO_BYTES and ratio > _MAX_RATIO):
            raise DatasetError(
                f"the member `{info.filename}` is too large: {size:,} bytes, compressed {ratio:,.0f} to 1",
                where=str(self.path),
                hint=f"members have at most {_MAX_MEMBER_BYTES >> 20} MiB, and at most {_MIN_RATIO_BYTES >> 20} MiB "
                f"if they are compressed more than {_MAX_RATIO} to 1",
            )

    def _read_zstandard(self, info: zipfile.ZipInfo) -> bytes:
        decompress = _load_zstandard()
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            file.seek(lengths, 1)
            packed = file.read(min(info.compress_size, self.path.stat().st_size))
            content: bytes = decompress(packed, info.file_size)
        if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
            raise ValueError("its checksum is wrong")
        return content

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def _read_chunks(stream: IO[bytes], size: int) -> bytes:
    """Read at most one byte more than a size, in chunks: the size is what the file claims."""
    content = bytearray()
    while len(content) <= size and (chunk := stream.read(min(_CHUNK_BYTES, size + 1 - len(content)))):
        content += chunk
    return bytes(content)


def _load_zstandard() -> Any:
    """Return a function that decompresses at most a number of bytes."""
    try:
        import zstandard
    except ModuleNotFoundError:
        raise MissingPackage.of(
            "zstandard", "reading logs that are compressed with Zstandard", extra="inspect"
        ) from None

    def decompress(data: bytes, size: int) -> bytes:
        try:
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
                return _read_chunks(reader, size)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None

    return decompress
