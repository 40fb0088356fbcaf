"""The header of a GGUF file: what a model says of itself, read without loading it.

The format: magic, version, number of tensors, number of facts, then the facts (name, type, value). Only short facts are
kept; of the vocabulary, which is most of the header, only the texts of the start and end token.
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
_LONGEST_LIST = 1024
_LONGEST_TEXT = 64 * 2**20
_MOST_FACTS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The facts of one file."""

    facts: Mapping[str, Any]
    tokens: Mapping[int, str] = field(default_factory=dict)
    """The texts of the start and end token, by number."""

    @property
    def trained_length(self) -> int | None:
        """Tokens the model was trained to hold."""
        length = self.facts.get(f"{self.facts.get('general.architecture')}.context_length")
        return int(length) if length else None

    @property
    def chat_template(self) -> str:
        """The template in the file, or nothing."""
        return str(self.facts.get("tokenizer.chat_template", ""))

    @property
    def named_templates(self) -> dict[str, str]:
        """Further templates in the file, by name."""
        start = "tokenizer.chat_template."
        return {
            name.removeprefix(start): str(text) for name, text in self.facts.items() if name.startswith(start)
        }

    def token(self, which: str) -> tuple[int | None, str]:
        """Number and text of the `bos` or `eos` token."""
        number = self.facts.get(f"tokenizer.ggml.{which}_token_id")
        return (None, "") if number is None else (int(number), self.tokens.get(int(number), ""))


def read_header(path: Path) -> GgufHeader:
    """The header of the file; read again only when the file has changed.

    Raises:
        DatasetError: There is no such file, or it is no GGUF.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise DatasetError(
            f"the model file cannot be read: {error.strerror}",
            where=str(path),
            hint="`pretrained` names a .gguf file",
        ) from None
    if not path.is_file():
        raise DatasetError("this is a folder, not a .gguf file", where=str(path), hint="name the file in it")
    return _read(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=8)
def _read(path: Path, size: int, changed_ns: int) -> GgufHeader:
    try:
        with path.open("rb") as file:
            return _Reader(file).header()
    except (struct.error, ValueError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise DatasetError(f"the file is no GGUF that can be read: {error}", where=str(path)) from None


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def header(self) -> GgufHeader:
        if self._file.read(4) != b"GGUF":
            raise ValueError("it does not begin with `GGUF`")
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version} of the format is not known")
        self._number("Q")  # tensors
        count = self._number("Q")
        if count > _MOST_FACTS:
            raise ValueError(f"it claims {count} facts")
        facts: dict[str, Any] = {}
        vocabulary = 0
        for _ in range(count):
            name = self._text()
            kind = self._number("I")
            if name == _VOCABULARY:
                vocabulary = self._file.tell()
            facts[name] = self._value(kind)
        return GgufHeader(facts=facts, tokens=self._tokens(vocabulary, facts))

    def _number(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        return struct.unpack("<" + form, self._file.read(size))[0]

    def _text(self) -> str:
        length = self._number("Q")
        if length > _LONGEST_TEXT:
            raise ValueError(f"it claims a text of {length} bytes")
        found = self._file.read(length)
        if len(found) < length:
            raise ValueError("it ends in the middle of its header")
        return found.decode("utf-8", errors="replace")

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            raise ValueError(f"type {kind} of a fact is not known")
        inner, count = self._number("I"), self._number("Q")
        if count > _LONGEST_LIST:
            return self._skip(inner, count)
        return [self._value(inner) for _ in range(count)]

    def _skip(self, kind: int, count: int) -> None:
        """Pass over a long list without keeping it."""
        if kind in _NUMBERS:
            self._file.seek(count * struct.calcsize("<" + _NUMBERS[kind]), 1)
        elif kind == _TEXT:
            for _ in range(count):
                self._file.seek(self._number("Q"), 1)
        else:
            raise ValueError(f"a list of {count} values of type {kind}")

    def _tokens(self, place: int, facts: Mapping[str, Any]) -> dict[int, str]:
        wanted = {
            int(facts[name])
            for which in ("bos", "eos")
            if (name := f"tokenizer.ggml.{which}_token_id") in facts
        }
        if not place or not wanted:
            return {}
        self._file.seek(place)
        inner, count = self._number("I"), self._number("Q")
        found: dict[int, str] = {}
        if inner == _TEXT:
            for number in range(min(count, max(wanted) + 1)):
                text = self._text()
                if number in wanted:
                    found[number] = text
        return found
