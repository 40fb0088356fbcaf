"""Read the header of a GGUF file without loading the model.

The format: magic, version, number of tensors, number of metadata entries, then the entries (name, type, value). Only
short entries are kept; of the vocabulary, which is most of the header, only the texts of the start and end token.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from assay.core.errors import DatasetError

__all__ = ["GgufHeader", "read_header"]

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_VOCABULARY = "tokenizer.ggml.tokens"
_MAX_LIST_LENGTH = 1024
_MAX_TEXT_BYTES = 64 * 2**20
_MAX_ENTRIES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The metadata of one GGUF file."""

    metadata: Mapping[str, Any]
    tokens: Mapping[int, str] = field(default_factory=dict)
    """The texts of the start and end token, by id."""

    @property
    def context_length(self) -> int | None:
        """The context length of the model's training, in tokens."""
        length = self.metadata.get(f"{self.metadata.get('general.architecture')}.context_length")
        return int(length) if length else None

    @property
    def chat_template(self) -> str:
        """The chat template in the file, or an empty string."""
        return str(self.metadata.get("tokenizer.chat_template", ""))

    @property
    def named_templates(self) -> dict[str, str]:
        """Further templates in the file, by name."""
        start = "tokenizer.chat_template."
        return {
            name.removeprefix(start): str(text)
            for name, text in self.metadata.items()
            if name.startswith(start)
        }

    def find_token(self, which: str) -> tuple[int | None, str]:
        """Return the id and text of the `bos` or `eos` token."""
        number = self.metadata.get(f"tokenizer.ggml.{which}_token_id")
        return (None, "") if number is None else (int(number), self.tokens.get(int(number), ""))


def read_header(path: Path) -> GgufHeader:
    """Read the header of a file. It is cached until the file changes.

    Raises:
        DatasetError: The file does not exist or is not a GGUF file.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise DatasetError(
            f"cannot read the model file: {error.strerror}",
            where=str(path),
            hint="`pretrained` must be a .gguf file",
        ) from None
    if not path.is_file():
        raise DatasetError(
            "the path is a folder, not a .gguf file", where=str(path), hint="pass the file in it"
        )
    return _read_cached(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=8)
def _read_cached(path: Path, size: int, changed_ns: int) -> GgufHeader:
    try:
        with path.open("rb") as file:
            return _HeaderReader(file).read_header()
    except (struct.error, ValueError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise DatasetError(f"invalid GGUF file: {error}", where=str(path)) from None


class _HeaderReader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read_header(self) -> GgufHeader:
        if self._file.read(4) != b"GGUF":
            raise ValueError("it does not start with `GGUF`")
        version = self._read_number("I")
        if version not in (2, 3):
            raise ValueError(f"unsupported format version {version}")
        self._read_number("Q")  # tensors
        count = self._read_number("Q")
        if count > _MAX_ENTRIES:
            raise ValueError(f"too many metadata entries: {count}")
        metadata: dict[str, Any] = {}
        vocabulary = 0
        for _ in range(count):
            name = self._read_text()
            kind = self._read_number("I")
            if name == _VOCABULARY:
                vocabulary = self._file.tell()
            metadata[name] = self._read_value(kind)
        return GgufHeader(metadata=metadata, tokens=self._read_tokens(vocabulary, metadata))

    def _read_number(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        return struct.unpack("<" + form, self._file.read(size))[0]

    def _read_text(self) -> str:
        length = self._read_number("Q")
        if length > _MAX_TEXT_BYTES:
            raise ValueError(f"text too long: {length} bytes")
        found = self._file.read(length)
        if len(found) < length:
            raise ValueError("the header is truncated")
        return found.decode("utf-8", errors="replace")

    def _read_value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._read_number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._read_text()
        if kind != _LIST:
            raise ValueError(f"unknown value type {kind}")
        inner, count = self._read_number("I"), self._read_number("Q")
        if count > _MAX_LIST_LENGTH:
            return self._skip(inner, count)
        return [self._read_value(inner) for _ in range(count)]

    def _skip(self, kind: int, count: int) -> None:
        """Skip a long list."""
        if kind in _NUMBERS:
            self._file.seek(count * struct.calcsize("<" + _NUMBERS[kind]), 1)
        elif kind == _TEXT:
            for _ in range(count):
                self._file.seek(self._read_number("Q"), 1)
        else:
            raise ValueError(f"unsupported list of {count} values of type {kind}")

    def _read_tokens(self, offset: int, metadata: Mapping[str, Any]) -> dict[int, str]:
        wanted = {
            int(metadata[name])
            for which in ("bos", "eos")
            if (name := f"tokenizer.ggml.{which}_token_id") in metadata
        }
        if not offset or not wanted:
            return {}
        self._file.seek(offset)
        inner, count = self._read_number("I"), self._read_number("Q")
        found: dict[int, str] = {}
        if inner == _TEXT:
            for number in range(min(count, max(wanted) + 1)):
                text = self._read_text()
                if number in wanted:
                    found[number] = text
        return found
