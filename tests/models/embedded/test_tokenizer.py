from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.models.embedded.tokenizer import CharacterTokenizer

TEXTS = [
    "",
    "Hello, world!",
    "two\nlines  and  spaces ",
    "tab\tand é and 漢字 are unknown",
    "<s>Question: <image>\nA</s>",
    "<|user|>hi</s><|assistant|>",
    "<im<image>age> <|user |> <<s>>",
]


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> CharacterTokenizer:
    return CharacterTokenizer.read(folder / "tokenizer.json")


def test_every_printable_character_is_one_token(tokenizer: CharacterTokenizer) -> None:
    text = "\n" + "".join(map(chr, range(32, 127)))
    ids = tokenizer.encode(text)
    assert len(ids) == len(set(ids)) == len(text)
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_found_in_text_and_left_out_of_text(tokenizer: CharacterTokenizer) -> None:
    ids = tokenizer.encode("<s>a<image>b</s>")
    assert len(ids) == 5
    assert tokenizer.decode(ids) == "ab"


def test_an_unknown_character_is_one_unknown_token(tokenizer: CharacterTokenizer) -> None:
    assert tokenizer.encode("é") == [tokenizer.find_id("<unk>")]


def test_another_kind_of_tokenizer_is_an_error(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    content["model"]["merges"] = [["a", "b"]]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(DatasetError, match="not a character tokenizer"):
        CharacterTokenizer.read(path)


@pytest.mark.torch
@pytest.mark.parametrize("text", TEXTS)
def test_it_agrees_with_transformers(tokenizer: CharacterTokenizer, folder: Path, text: str) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    assert theirs(text, add_special_tokens=False).input_ids == tokenizer.encode(text)
    assert theirs.decode(tokenizer.encode(text), skip_special_tokens=True) == tokenizer.decode(
        tokenizer.encode(text)
    )
