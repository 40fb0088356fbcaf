"""The character tokenizer of the embedded model.

It reads a tokenizer.json with a BPE model without merges and with special tokens, and rejects anything else, so that the
base install does not need the package `tokenizers`.
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
    """Converts text to token ids and back. Special tokens are recognized anywhere in a text."""

    def __init__(self, vocabulary: dict[str, int], special_tokens: dict[str, int], unknown: str) -> None:
        self._ids = vocabulary
        self._special_ids = special_tokens
        self._unknown = vocabulary[unknown]
        self._texts = {number: text for text, number in vocabulary.items() if text not in special_tokens}
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def read(cls, path: Path) -> CharacterTokenizer:
        """Read tokenizer.json.

        Raises:
            DatasetError: It is not a character tokenizer.
        """
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

    def find_id(self, token: str) -> int:
        """Return the id of a token that must exist."""
        return self._ids[token]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without a start token. Unknown characters become `<unk>`."""
        found: list[int] = []
        start = 0
        for match in self._special.finditer(text) if self._special else ():
            found += self._encode_plain(text[start : match.start()])
            found.append(self._special_ids[match.group()])
            start = match.end()
        return found + self._encode_plain(text[start:])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids without special tokens."""
        return "".join(self._texts.get(number, "") for number in ids)

    def decode_each(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Return the text of each token; special tokens by name."""
        special = {number: text for text, number in self._special_ids.items()}
        return tuple(special.get(number) or self._texts.get(number, "") for number in ids)

    def _encode_plain(self, text: str) -> list[int]:
        return [self._ids.get(character, self._unknown) for character in text]
