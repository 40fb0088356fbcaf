"""The tree contains every sequence and every shared token once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree, pack

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), max_size=12)


def paths(node: Node, before: tuple[int, ...] = ()) -> dict[int, tuple[int, ...]]:
    """Return each sequence as read from the tree."""
    assert node.start == len(before)
    here = before + tuple(node.tokens.tolist())
    found = dict.fromkeys(node.ends, here)
    for child in node.children:
        found |= paths(child, here)
    return found


@given(SEQUENCES)
def test_every_sequence_is_a_path_of_the_tree(sequences: list[list[int]]) -> None:
    assert paths(build_tree(sequences)) == {at: tuple(one) for at, one in enumerate(sequences)}


@given(SEQUENCES)
def test_the_tree_has_one_token_for_every_distinct_prefix(sequences: list[list[int]]) -> None:
    prefixes = {tuple(one[:end]) for one in sequences for end in range(1, len(one) + 1)}
    tree = build_tree(sequences)
    assert tree.weight == len(prefixes)
    assert all(node.weight > 0 for child in tree.children for node in child.walk())


def test_a_chain_of_a_thousand_prefixes_does_not_recurse() -> None:
    tree = build_tree([[1] * length for length in range(1, 1500)])
    assert tree.weight == 1499
    assert len(list(tree.walk())) == 1500


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 12))
def test_packing_keeps_the_order_and_the_size_limit(sizes: list[int], room: int) -> None:
    groups = list(pack(range(len(sizes)), sizes, room))
    assert [item for group in groups for item in group] == list(range(len(sizes)))
    assert all(len(group) == 1 or sum(sizes[item] for item in group) <= room for group in groups)
