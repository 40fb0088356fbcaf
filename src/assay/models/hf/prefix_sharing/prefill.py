"""Read prompts into the KV cache, computing shared prefixes once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.batch_budget import Budget
from assay.models.hf.prefix_sharing.kv_cache import KeptTokens
from assay.models.hf.prefix_sharing.model_runner import Computed, Runner
from assay.models.hf.prefix_sharing.pass_execution import Ahead, compute
from assay.models.hf.prefix_sharing.pass_planning import Plan
from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree

__all__ = ["Begun", "arrange_prompts", "prefill"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A job whose prompt is computed."""

    job: int
    past: KeptTokens
    logits: Any
    """Of the token after the prompt."""


def arrange_prompts(prompts: Sequence[Sequence[int]], runner: Runner, budget: Budget) -> Ahead:
    """The passes that read prompts, what prompts share computed once; done before the model has time for them."""

    def wanted(node: Node) -> NDArray[np.int64]:
        return np.array([len(node.tokens) - 1] if node.ends else [], np.int64)

    return Ahead(Plan(build_tree(prompts), wanted, runner), budget).begin()


def prefill(arranged: Ahead, runner: Runner) -> Iterator[Begun]:
    """Each prompt as soon as it is computed."""
    for _, computed in compute(arranged, runner, keep=True):
        for number, piece in enumerate(computed.pieces):
            if not piece.node.ends or piece.high != len(piece.node.tokens):
                continue
            row = computed.rows[piece.offset + piece.high - piece.low - 1]
            if row < 0:
                continue
            with runner.computing():
                past = _path(computed, number, runner.device)
            for job in piece.node.ends:
                yield Begun(job, past, computed.logits[row])


def _path(computed: Computed, number: int, device: Any) -> KeptTokens:
    """What is kept of one path through a pass: everything before the pass, then the pieces it leads through."""
    import torch

    assert computed.past is not None
    spans = []
    at = number
    while at >= 0:
        piece = computed.pieces[at]
        first = computed.past_length + piece.offset
        spans.append(np.arange(first, first + piece.high - piece.low))
        at = piece.parent
    spans.append(np.arange(computed.past_length))
    places = np.concatenate(spans[::-1])
    return computed.past.picked(torch.from_numpy(places).to(device))
