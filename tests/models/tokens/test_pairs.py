"""Token pairs and rolling windows follow the rules of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.tokens import (
    Pair,
    TextEncoder,
    Unanswerable,
    encode_pair,
    encode_pairs,
    fit_pair,
    fit_prompt,
    split_rolling_windows,
)

BOS = 1


class WordTokenizer:
    """A tokenizer whose tokens are words with the preceding space; `calls` counts its calls."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.calls = 0

    def __call__(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        self.calls += 1
        return [([BOS] if special else []) + self._one(text) for text in texts]

    def _one(self, text: str) -> list[int]:
        begin, found = (len("<s>"), [BOS]) if text.startswith("<s>") else (0, [])
        word = ""
        for letter in text[begin:]:
            if letter == " " and word.strip():
                found.append(self.names.setdefault(word, 10 + len(self.names)))
                word = ""
            word += letter
        return [*found, self.names.setdefault(word, 10 + len(self.names))] if word else found


def encoder(**changes: object) -> TextEncoder:
    return TextEncoder(**{"encode": WordTokenizer(), "prefix_token": BOS, "prefix_text": "<s>", **changes})  # type: ignore[arg-type]


def test_the_continuation_starts_after_the_tokens_of_the_context() -> None:
    assert encode_pair("the sky is", " blue today", encoder()) == Pair([1, 10, 11, 12], [13, 14])


def test_trailing_whitespace_moves_to_the_continuation() -> None:
    made = encoder()
    assert encode_pair("the sky ", "is", made) == encode_pair("the sky", " is", made)


@pytest.mark.parametrize(
    ("context", "add_bos", "expected"),
    [
        ("a", None, [1, 10]),
        ("a", True, [1, 10]),
        ("a", False, [10]),
        ("<s>a", None, [1, 10]),  # the template added the start token, so the tokenizer adds none
        ("<s>a", True, [1, 10]),
    ],
)
def test_a_start_token_is_added_once(context: str, add_bos: bool | None, expected: list[int]) -> None:
    assert encode_pair(context, " b", encoder(add_bos=add_bos)) == Pair(expected, [11])


def test_an_empty_context_is_the_prefix_token() -> None:
    assert encode_pair("", "b", encoder()) == Pair([BOS], [10])
    assert encode_pair(" ", "b", encoder(add_bos=False)) == Pair([BOS], [10])


def test_a_prefix_token_in_the_continuation_becomes_the_context() -> None:
    assert encode_pair("", "<s>b", encoder()) == Pair([BOS], [10])


def test_encoder_decoder_models_encode_the_two_separately() -> None:
    assert encode_pair("a ", "b", encoder(), separate=True) == Pair([BOS, 10], [11])


@pytest.mark.parametrize(("context", "continuation"), [("a", ""), ("", ""), ("", "<s>")])
def test_an_empty_continuation_is_an_error(context: str, continuation: str) -> None:
    with pytest.raises(Unanswerable, match="nothing to score"):
        encode_pair(context, continuation, encoder())


def test_one_bad_pair_does_not_fail_the_others_and_the_tokenizer_is_called_once() -> None:
    words = WordTokenizer()
    found = encode_pairs([("a", " b"), ("a", ""), ("a", " c")], encoder(encode=words))
    assert [type(one) for one in found] == [Pair, Unanswerable, Pair]
    assert words.calls == 1


def test_many_pairs_are_encoded_as_each_alone() -> None:
    texts = [("a b", " c"), ("", "d"), ("<s>a", " e"), ("a b ", "f"), (" ", "g")]
    for separate in (False, True):
        made = encoder()
        alone = [encode_pair(*text, made, separate=separate) for text in texts]
        assert encode_pairs(texts, made, separate=separate) == alone


def test_a_long_context_is_truncated_on_the_left() -> None:
    pair = Pair([1, 2, 3, 4], [5, 6])
    assert fit_pair(pair, 10) is pair
    assert fit_pair(pair, 4) == Pair([2, 3, 4], [5, 6], truncated=1)
    assert len(fit_pair(pair, 4).inputs) == 4
    assert fit_pair(pair, 2) == Pair([4], [5, 6], truncated=3)
    assert fit_pair(fit_pair(pair, 4), 2).truncated == 3
    with pytest.raises(Unanswerable, match="2 tokens, the context length is 1"):
        fit_pair(pair, 1)


def test_a_prompt_leaves_room_for_the_answer() -> None:
    assert fit_prompt([1, 2, 3, 4], 5, 3) == [3, 4]
    with pytest.raises(Unanswerable, match="no room"):
        fit_prompt([1], 4, 4)


@pytest.mark.parametrize(
    ("length", "max_length", "expected"),
    [
        (0, 4, []),
        (3, 4, [([0], [1, 2, 3])]),
        (4, 4, [([0], [1, 2, 3, 4])]),
        (6, 4, [([0], [1, 2, 3, 4]), ([2, 3, 4], [5, 6])]),
        (9, 4, [([0], [1, 2, 3, 4]), ([4], [5, 6, 7, 8]), ([5, 6, 7, 8], [9])]),
        (3, 1, [([0], [1]), ([1], [2]), ([2], [3])]),
    ],
)
def test_rolling_windows_match_lm_eval(
    length: int, max_length: int, expected: list[tuple[list[int], list[int]]]
) -> None:
    tokens = list(range(1, length + 1))
    found = split_rolling_windows(tokens, prefix_token=0, max_length=max_length)
    assert [(pair.context, pair.continuation) for pair in found] == expected


@given(st.lists(st.integers(1, 9), max_size=40), st.integers(1, 12))
def test_every_token_is_scored_once_and_fits(tokens: list[int], max_length: int) -> None:
    found = split_rolling_windows(tokens, prefix_token=0, max_length=max_length)
    assert [token for pair in found for token in pair.continuation] == tokens
    assert all(pair.context and len(pair.inputs) <= max_length for pair in found)


def test_a_window_length_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        split_rolling_windows([1], prefix_token=0, max_length=0)
