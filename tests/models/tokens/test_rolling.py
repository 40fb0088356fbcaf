"""Rolling windows: every token scored once, no window longer than the model, as lm-evaluation-harness cuts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.tokens import split_rolling_windows


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
def test_windows_are_cut_as_recorded(
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


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        split_rolling_windows([1], prefix_token=0, max_length=0)
