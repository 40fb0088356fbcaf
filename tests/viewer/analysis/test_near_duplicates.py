"""Texts that differ only a little."""

from __future__ import annotations

import random
import time

import pytest

from assay.viewer.analysis.near_duplicates import find_near_duplicates

TEXT = "The quick brown fox jumps over the lazy dog near the old river bank"


@pytest.mark.parametrize(
    ("other", "found"),
    [
        pytest.param(TEXT.upper(), True, id="case"),
        pytest.param(f"  {TEXT.replace(' ', '  ')}!", True, id="spaces and punctuation"),
        pytest.param(TEXT.replace("quick", "quikc"), True, id="swapped letters"),
        pytest.param(f"{TEXT}s", True, id="one more letter"),
        pytest.param(
            "A slow white cat sleeps under the busy table of the new hotel", False, id="another text"
        ),
        pytest.param(f"{TEXT} 7", False, id="a number"),
    ],
)
def test_small_changes_are_recognised(other: str, found: bool) -> None:
    assert find_near_duplicates([TEXT, other]) == ([(1, 0)] if found else [])


def test_texts_of_one_template_with_other_numbers_are_different() -> None:
    texts = [
        f"Tom has {n} apples and buys {n + 3} more. How many apples does he have now?" for n in range(500)
    ]
    assert find_near_duplicates(texts) == []


def test_texts_without_words_have_no_duplicates() -> None:
    assert find_near_duplicates(["", "", "?!", "?!"]) == []


def test_many_texts_are_compared_quickly_and_every_planted_duplicate_is_found() -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(3000)]
    texts = [" ".join(draw.choices(words, k=draw.randint(12, 30))) for _ in range(4000)]
    planted = range(3000, 4000, 50)
    for index in planted:
        source = texts[index - 3000]
        at = draw.randrange(len(source))
        texts[index] = f"{source[:at]}{source[at + 1 :]}".upper()
    started = time.process_time()
    found = dict(find_near_duplicates(texts))
    assert time.process_time() - started < 4  # a hundred thousand texts take about 5 s
    assert found == {index: index - 3000 for index in planted}
