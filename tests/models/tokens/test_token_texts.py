"""The text of each token, also where a character spans several tokens."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from assay.models.tokens import build_tokens, decode_each_token, tokens_from_bytes


def decode(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode("utf-8", "replace")


@given(st.text(max_size=30))
def test_the_texts_of_all_tokens_are_the_text(text: str) -> None:
    assert "".join(decode_each_token(list(text.encode()), decode)) == text


def test_a_character_belongs_to_its_last_token() -> None:
    assert decode_each_token(list("aé".encode()), decode) == ("a", "", "é")


def test_a_token_is_decoded_after_its_context() -> None:
    def strip_start(tokens: Sequence[int]) -> str:
        return decode(tokens).removeprefix(" ")

    assert decode_each_token(list(b" a"), strip_start, before=list(b"x")) == (" ", "a")


def test_tokens_without_a_log_probability_are_left_out() -> None:
    tokens = build_tokens(list(b"abc"), [-1.0, -2.0], decode)
    assert (tokens.pieces, tokens.logprobs) == (("a", "b"), (-1.0, -2.0))


def test_bytes_of_one_character_are_joined() -> None:
    assert tokens_from_bytes(["é".encode()[:1], "é".encode()[1:]], [-1.0, -0.5]).pieces == ("", "é")
