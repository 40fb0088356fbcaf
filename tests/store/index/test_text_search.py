"""Finding words in many texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.store.index import text_search as module
from assay.store.index.text_search import TextIndex, parse_search_words


def found(path: Path, texts: list[str], words: list[str]) -> list[int]:
    file = TextIndex(path)
    file.append(list(range(len(texts))), texts)
    file.close()
    return np.flatnonzero(file.search(words, len(texts))).tolist()


TEXTS = ["The cat sat", "on the MAT", "Über die Straße 猫が好き", "", "cat\0mat", "the end"]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("cat", [0, 4]),
        ("CAT", [0, 4]),
        ("at", [0, 1, 4]),
        ("cat mat", [4]),
        ('"cat mat"', [4]),
        ('"the mat"', [1]),
        ("über", [2]),
        ("猫が", [2]),
        ("t", [0, 1, 2, 4, 5]),
        ("the end", [5]),
        ("nothing", []),
        ("x" * 500, []),
    ],
)
def test_every_word_must_occur_somewhere(tmp_path: Path, query: str, rows: list[int]) -> None:
    assert found(tmp_path / "t", TEXTS, parse_search_words(query)) == rows


def test_a_word_never_reaches_from_one_text_into_the_next(tmp_path: Path) -> None:
    assert found(tmp_path / "t", ["ab", "cd"], ["bc"]) == []


@given(
    st.lists(st.text(alphabet="abcß€ ", max_size=12), max_size=12),
    st.text(alphabet="abcß€", min_size=1, max_size=4),
)
def test_it_finds_what_looking_at_each_text_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], word: str
) -> None:
    path = tmp_path_factory.mktemp("texts") / "t"
    expected = [at for at, text in enumerate(texts) if word.lower() in text.lower()]
    assert found(path, texts, [word.lower()]) == expected


def test_words_across_the_borders_of_blocks_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCAN_BLOCK_BYTES", 7)
    texts = [f"document number {n} of many" for n in range(50)]
    assert found(tmp_path / "t", texts, ["number 17 of"]) == [17]


def test_a_later_text_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    file = TextIndex(tmp_path / "t")
    file.append([0, 1], ["before", "other"])
    file.discard_rows(np.array([0]))
    file.append([0], ["after"])
    file.close()
    assert file.search(["before"], 2).tolist() == [False, False]
    assert file.search(["after"], 2).tolist() == [True, False]
