"""Batching for model classes of lm-eval without its package. Random requests gave the batches of lm_eval 0.4.13."""

from __future__ import annotations

import pytest

from assay.core.errors import MissingPackage
from assay_compat.models.request_batching import (
    Collator,
    Reorderer,
    chunks,
    get_rolling_token_windows,
    handle_stop_sequences,
    make_disjoint_window,
    postprocess_generated_text,
)

REQUESTS = [("aa", {"until": ["x"]}), ("b", {"until": ["y"]}), ("cccc", {"until": ["x"]}), ("ddd", {})]


def longest_first(request: tuple[str, object]) -> int:
    return -len(request[0])


@pytest.mark.parametrize(
    ("group_by", "size", "batches"),
    [
        ("gen_kwargs", 2, [["cccc", "aa"], ["b"], ["ddd"]]),
        ("gen_kwargs", 1, [["cccc"], ["aa"], ["b"], ["ddd"]]),
        (None, 3, [["cccc", "ddd", "aa"], ["b"]]),
        (None, 0, [["cccc", "ddd", "aa", "b"]]),
    ],
)
def test_requests_of_a_batch_have_the_same_settings(
    group_by: str | None, size: int, batches: list[list[str]]
) -> None:
    collator = Collator(REQUESTS, longest_first, group_by=group_by)
    made = list(collator.get_batched(n=size))
    assert [[text for text, _ in batch] for batch in made] == batches
    results = collator.get_original([text.upper() for batch in made for text, _ in batch])
    assert results == ["AA", "B", "CCCC", "DDD"]


def test_grouping_by_context_needs_the_package() -> None:
    with pytest.raises(MissingPackage, match="lm_eval"):
        Collator(REQUESTS, group_by="contexts")


def test_results_of_sorted_items_return_to_their_places() -> None:
    reorderer = Reorderer(["bb", "a", "ccc"], len)
    assert reorderer.get_reordered() == ["a", "bb", "ccc"]
    assert reorderer.get_original([1, 2, 3]) == [2, 1, 3]


def test_a_function_sets_the_size_of_chunks() -> None:
    assert list(chunks("abcde", n=2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(chunks("abcde", fn=lambda index, items: 1 if index < 2 else len(items))) == [
        ["a"],
        ["b"],
        ["c", "d", "e"],
    ]


def test_windows_score_every_token_once() -> None:
    windows = list(get_rolling_token_windows([1, 2, 3, 4, 5], prefix_token=0, max_seq_len=3, context_len=2))
    assert windows == [([0, 1, 2], [1, 2, 3]), ([2, 3, 4], [4, 5])]
    assert make_disjoint_window(([3, 4, 5], [5, 6])) == ([3, 4], [5, 6])


@pytest.mark.parametrize(
    ("until", "stops"), [(None, ["</s>"]), ("a", ["a", "</s>"]), (["</s>", "b"], ["</s>", "b"])]
)
def test_the_end_token_is_a_stop_string(until: str | list[str] | None, stops: list[str]) -> None:
    assert handle_stop_sequences(until, "</s>") == stops


def test_an_answer_is_cut_after_its_thinking() -> None:
    assert postprocess_generated_text("a stop </think> b stop c", ["stop"], "</think>") == "b "
