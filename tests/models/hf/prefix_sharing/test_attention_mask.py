"""The attention mask of a packed tree equals its definition, and blocks contain all visible keys."""

from __future__ import annotations

import random

import numpy as np
import pytest

from assay.models.hf.prefix_sharing.attention_mask import build_mask, is_chain, split_into_blocks
from assay.models.hf.prefix_sharing.prefix_tree import Node, NodeSlice

LEAST = -1e30


def make_random_slices(seed: int) -> list[NodeSlice]:
    """Return slices of random lengths, each continuing the past or an earlier slice."""
    draw = random.Random(seed)
    slices: list[NodeSlice] = []
    offset = 0
    for number in range(draw.randint(1, 12)):
        length = draw.choice([1, 2, 5, 40, 90])
        node = Node(np.zeros(length, np.int32), 0)
        parent = draw.choice([-1, number - 1, draw.randrange(-1, number)])
        slices.append(NodeSlice(node, 0, length, offset, parent))
        offset += length
    return slices


def attends(slices: list[NodeSlice], row: int, column: int) -> bool:
    """The definition: the same slice up to the token itself, or a slice that it continues."""
    of = [number for number, piece in enumerate(slices) for _ in range(piece.high)]
    at = of[row]
    if at == of[column]:
        return column <= row
    while (at := slices[at].parent) >= 0:
        if at == of[column]:
            return True
    return False


@pytest.mark.parametrize("seed", range(8))
def test_a_token_attends_to_the_past_its_ancestors_and_itself(seed: int) -> None:
    slices, before = make_random_slices(seed), seed % 3 * 7
    mask = build_mask(slices, before, LEAST)
    total = len(mask)
    assert mask.shape == (total, before + total)
    assert not mask[:, :before].any()
    draw = random.Random(seed)
    for _ in range(2000):
        row, column = draw.randrange(total), draw.randrange(total)
        assert (mask[row, before + column] == 0) == attends(slices, row, column)


@pytest.mark.parametrize("seed", range(8))
def test_blocks_contain_every_token_once_and_all_its_keys(seed: int) -> None:
    slices = make_random_slices(seed)
    mask = build_mask(slices, 30, LEAST)
    blocks = split_into_blocks(slices, mask, 16)
    assert [row for block in blocks for row in range(block.low, block.high)] == list(range(len(mask)))
    for block in blocks:
        held = np.zeros(mask.shape[1], dtype=bool)
        for low, high in block.spans:
            assert not held[low:high].any()
            held[low:high] = True
        assert not (mask[block.low : block.high, ~held] == 0).any()


def test_siblings_and_later_tokens_are_masked() -> None:
    nodes = [Node(np.zeros(128, np.int32), 0) for _ in range(2)]
    slices = [NodeSlice(node, 0, 128, 128 * at, -1) for at, node in enumerate(nodes)]
    mask = build_mask(slices, 0, LEAST)
    assert [(block.low, block.high, block.spans) for block in split_into_blocks(slices, mask, 64)] == [
        (0, 64, ((0, 64),)), (64, 128, ((0, 128),)), (128, 192, ((128, 192),)), (192, 256, ((128, 256),)),
    ]  # fmt: skip
    after = split_into_blocks(slices, build_mask(slices, 100, LEAST), 64)
    assert after[-2].spans == ((0, 100), (228, 292))


def test_a_chain_needs_no_mask() -> None:
    slices = make_random_slices(3)
    chain = [NodeSlice(one.node, one.low, one.high, one.offset, at - 1) for at, one in enumerate(slices)]
    assert is_chain(chain)
    mask = build_mask(chain, 0, LEAST)
    assert (np.triu(mask, 1) == mask).all() and (mask[np.triu_indices(len(mask), 1)] == LEAST).all()
