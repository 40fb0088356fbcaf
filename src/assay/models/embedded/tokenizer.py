"""One character, one token: a reader for the tokenizer.json of the embedded model.

It understands what that file holds (a BPE model without merges, and special tokens) and refuses anything
else, so that the base install does not need the `tokenizers` package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError

__all__ = ["CharacterTokenizer"]


class CharacterTokenizer:
    """Text to token ids and back. Special tokens are found in text wherever they are written out."""

    def __init__(self, vocabulary: dict[str, int], special_tokens: dict[str, int], unknown: str) -> None:
        self._ids = vocabulary
        self._special_ids = special_tokens
        self._unknown = vocabulary[unknown]
        self._texts = {number: text for text, number in vocabulary.items() if text not in special_tokens}
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def read(cls, path: Path) -> CharacterTokenizer:
        """Read tokenizer.json, and say so when it is not of this simple kind."""
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model = content["model"]
        if model["type"] != "BPE" or model["merges"] or content["normalizer"] or content["pre_tokenizer"]:
            raise DatasetError(
                "the tokenizer is not a character tokenizer",
                where=str(path),
                hint="the embedded engine runs only models made by tools/embedded_model",
            )
        special = {token["content"]: token["id"] for token in content["added_tokens"]}
        return cls(model["vocab"], special, model["unk_token"])

    def __len__(self) -> int:
        return len(self._ids)

    def id_of(self, token: str) -> int:
        """The id of a token that must exist."""
        return self._ids[token]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without a start token; characters outside the vocabulary become `<unk>`."""
        found: list[int] = []
        start = 0
        for match in self._special.finditer(text) if self._special else ():
            found += self._encode_plain(text[start : match.start()])
            found.append(self._special_ids[match.group()])
            start = match.end()
        return found + self._encode_plain(text[start:])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, special tokens left out."""
        return "".join(self._texts.get(number, "") for number in ids)

    def pieces(self, ids: Iterable[int]) -> tuple[str, ...]:
        """What each token writes, special ones by their names."""
        special = {number: text for text, number in self._special_ids.items()}
        return tuple(special.get(number) or self._texts.get(number, "") for number in ids)

    def _encode_plain(self, text: str) -> list[int]:
        return [self._ids.get(character, self._unknown) for character in text]
