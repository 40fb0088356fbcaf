from __future__ import annotations

import pytest

from assay.scoring.decontamination import find_overlaps, iterate_ngrams, split_words

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Hello, World!", ["hello", "world"], id="case and punctuation do not count"),
        pytest.param(
            "it's a well-known", ["it's", "a", "well", "known"], id="an apostrophe is part of a word"
        ),
        pytest.param("Ångström 東京", ["ångström", "東京"], id="words of every language"),
        pytest.param("…", [], id="no words"),
    ],
)
def test_a_text_is_its_words(text: str, expected: list[str]) -> None:
    assert split_words(text) == expected


def test_a_short_text_is_one_run_and_an_empty_one_none() -> None:
    assert list(iterate_ngrams("one two")) == [("one", "two")]
    assert list(iterate_ngrams("")) == []
    assert len(list(iterate_ngrams(LONG))) == 2


@pytest.mark.parametrize(
    ("corpus", "contaminated"),
    [
        pytest.param([f"before {LONG.upper()}, after"], True, id="the whole query"),
        pytest.param([LONG.rpartition(" ")[0]], True, id="thirteen words of it"),
        pytest.param([LONG.rpartition(" ")[0].rpartition(" ")[0]], False, id="twelve words are not enough"),
        pytest.param([LONG[:40], LONG[40:]], False, id="a run does not cross two texts"),
        pytest.param([], False, id="an empty corpus"),
    ],
)
def test_a_shared_run_of_thirteen_words_is_an_overlap(corpus: list[str], contaminated: bool) -> None:
    assert bool(find_overlaps({7: LONG}, corpus)) is contaminated


def test_the_shared_words_are_told_for_each_document_in_order() -> None:
    found = find_overlaps({2: "x y z", 0: "a b c", 1: "nothing here"}, ["a b c x y z"], size=3)
    assert found == {0: "a b c", 2: "x y z"}
