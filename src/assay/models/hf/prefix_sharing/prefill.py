"""Read prompts into the KV cache, computing shared prefixes once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.batch_budget import BatchBudget
from assay.models.hf.prefix_sharing.kv_cache import SequenceCache
from assay.models.hf.prefix_sharing.model_runner import ModelRunner, PassResult
from assay.models.hf.prefix_sharing.pass_execution import PassPrefetcher, run_passes
from assay.models.hf.prefix_sharing.pass_planning import PassPlan
from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree

__all__ = ["PrefilledPrompt", "plan_prefill", "prefill_prompts"]


@dataclass(frozen=True, slots=True)
class PrefilledPrompt:
    """A prompt whose KV cache is computed."""

    job: int
    past: SequenceCache
    logits: Any
    """The logits of the token after the prompt."""


def plan_prefill(
    prompts: Sequence[Sequence[int]], runner: ModelRunner, budget: BatchBudget
) -> PassPrefetcher:
    """Plan the passes that read some prompts and compute shared prefixes once. The first pass is prepared on return."""

    def select_last_position(node: Node) -> NDArray[np.int64]:
        return np.array([len(node.tokens) - 1] if node.ends else [], np.int64)

    return PassPrefetcher(PassPlan(build_tree(prompts), select_last_position, runner), budget).start()


def prefill_prompts(passes: PassPrefetcher, runner: ModelRunner) -> Iterator[PrefilledPrompt]:
    """Compute prompts and yield each as soon as it is complete."""
    for _, computed in run_passes(passes, runner, keep_cache=True):
        logits = runner.compute_logits(computed.states)
        for number, part in enumerate(computed.slices):
            if not part.node.ends or part.high != len(part.node.tokens):
                continue
            row = computed.rows[part.offset + part.high - part.low - 1]
            if row < 0:
                continue
            with runner.count_model_time():
                past = _select_path_cache(computed, number, runner.device)
            for job in part.node.ends:
                yield PrefilledPrompt(job, past, logits[row])


def _select_path_cache(computed: PassResult, number: int, device: Any) -> SequenceCache:
    """Return the cache of one path through a pass: the past, then the slices on the path."""
    import torch

    assert computed.past is not None
    spans = []
    index = number
    while index >= 0:
        part = computed.slices[index]
        first = computed.past_length + part.offset
        spans.append(np.arange(first, first + part.high - part.low))
        index = part.parent
    spans.append(np.arange(computed.past_length))
    positions = np.concatenate(spans[::-1])
    return computed.past.select(torch.from_numpy(positions).to(device))
