"""Log probabilities of continuations, with or without prefix sharing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.hf.prefix_sharing.model_runner import ModelRunner, PreparedPass
from assay.models.hf.prefix_sharing.pass_execution import PassPrefetcher, run_passes
from assay.models.hf.prefix_sharing.pass_planning import PassPlan
from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree, pack
from assay.models.hf.sampling import argmax_tokens
from assay.models.tokens import Pair

__all__ = [
    "ScoredPair",
    "TokenCallback",
    "plan_scoring",
    "read_log_probabilities",
    "score_shared",
    "score_unshared",
]

ScoredPair = tuple[int, float, bool]
"""Index of a pair, its log probability, and whether greedy decoding would generate it."""

TokenCallback = Callable[[NDArray[np.int64], NDArray[np.float64]], None]
"""Called with the pair index and the log probability of each scored token. The tokens of a pair come in order."""


_EMPTY = np.empty(0, np.int64)
_Targets = dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]
"""Per node: pair indexes, positions in the node, target tokens; and the sorted unique positions."""


def plan_scoring(
    pairs: Sequence[Pair], runner: ModelRunner, budget: BatchBudget, *, max_logit_rows: int
) -> PassPrefetcher:
    """Plan the passes that score some pairs and compute shared prefixes once. The first pass is prepared on return."""
    tree = build_tree([pair.inputs for pair in pairs])
    node_targets = _collect_targets(tree, pairs)

    def select_positions(node: Node) -> NDArray[np.int64]:
        found = node_targets.get(id(node))
        return _EMPTY if found is None else found[3]

    plan = PassPlan(
        tree,
        select_positions,
        runner,
        max_logit_rows=max_logit_rows,
        annotate=lambda prepared: _find_lookups(prepared, node_targets),
    )
    return PassPrefetcher(plan, budget).start()


def score_shared(
    pairs: Sequence[Pair],
    passes: PassPrefetcher,
    runner: ModelRunner,
    *,
    softmax_dtype: Any = None,
    on_tokens: TokenCallback | None = None,
) -> Iterator[ScoredPair]:
    """Score pairs with prefix sharing. Yields each pair as soon as its last token is computed."""
    totals = np.zeros(len(pairs))
    greedy = np.ones(len(pairs), dtype=bool)
    missing = np.array([len(pair.continuation) for pair in pairs])
    for planned, computed in run_passes(passes, runner):
        pair_indexes, logit_rows, targets = planned.annotation
        if not len(pair_indexes):
            continue
        log_probabilities, best = _score_tokens(runner, computed.states, logit_rows, targets, softmax_dtype)
        if on_tokens is not None:
            on_tokens(pair_indexes, log_probabilities)
        del planned, computed
        np.add.at(totals, pair_indexes, log_probabilities)
        np.logical_and.at(greedy, pair_indexes, best)
        np.subtract.at(missing, pair_indexes, 1)
        for index in np.unique(pair_indexes[missing[pair_indexes] == 0]).tolist():
            yield index, float(totals[index]), bool(greedy[index])


def _score_tokens(
    runner: ModelRunner,
    states: Any,
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    softmax_dtype: Any,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the log probabilities of target tokens after a pass, and whether each is the most likely token."""
    log_probabilities = np.empty(len(rows))
    best = np.empty(len(rows), dtype=bool)
    for first, logits in runner.compute_logits_in_parts(states):
        inside = np.flatnonzero((rows >= first) & (rows < first + len(logits)))
        with runner.count_model_time():
            log_probabilities[inside], best[inside] = read_log_probabilities(
                logits, rows[inside] - first, targets[inside], softmax_dtype
            )
    return log_probabilities, best


def _collect_targets(tree: Node, pairs: Sequence[Pair]) -> _Targets:
    """Return which tokens of which pairs are scored in each node. A token is predicted by the one before it."""
    found: _Targets = {}
    below: dict[int, list[int]] = {}
    for node in reversed(list(tree.walk())):
        members = node.ends + [index for child in node.children for index in below.pop(id(child))]
        below[id(node)] = members
        pair_indexes, positions, targets = [], [], []
        for index in members:
            pair = pairs[index]
            first = len(pair.context) - 1
            low, high = max(first, node.start), min(first + len(pair.continuation), node.end)
            if low < high:
                pair_indexes.append(np.full(high - low, index, np.int64))
                positions.append(np.arange(low - node.start, high - node.start, dtype=np.int64))
                targets.append(np.asarray(pair.continuation[low - first : high - first], np.int64))
        if pair_indexes:
            each = np.concatenate(positions)
            found[id(node)] = (np.concatenate(pair_indexes), each, np.concatenate(targets), np.unique(each))
    return found


def _find_lookups(
    prepared: PreparedPass, node_targets: _Targets
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs, the rows of the logits and the target tokens that a pass scores."""
    pair_indexes, rows, targets = [_EMPTY], [_EMPTY], [_EMPTY]
    for part in prepared.slices:
        if id(part.node) not in node_targets:
            continue
        members, positions, tokens, _ = node_targets[id(part.node)]
        inside = (positions >= part.low) & (positions < part.high)
        logit_rows = prepared.rows[positions[inside] - part.low + part.offset]
        known = logit_rows >= 0
        pair_indexes.append(members[inside][known])
        rows.append(logit_rows[known])
        targets.append(tokens[inside][known])
    return np.concatenate(pair_indexes), np.concatenate(rows), np.concatenate(targets)


def read_log_probabilities(
    logits: Any, rows: NDArray[np.int64], targets: NDArray[np.int64], softmax_dtype: Any
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the log probabilities of target tokens, and whether each is the most likely token."""
    import torch

    found = np.empty(len(rows))
    best = np.empty(len(rows), dtype=bool)
    on_cpu = logits.device.type == "cpu"
    step = max(1, _MAX_LOGITS_PER_STEP // logits.shape[-1]) if on_cpu else max(1, len(logits))
    with torch.inference_mode():
        for first in range(0, len(logits), step):
            inside = np.flatnonzero((rows >= first) & (rows < first + step))
            if not len(inside):
                continue
            part = logits[first : first + step].to(softmax_dtype or torch.float32)
            row, token = (torch.from_numpy(one[inside]).to(logits.device) for one in (rows - first, targets))
            # not `logsumexp`, which rounds less on a CPU: lm-eval uses log_softmax
            found[inside] = part.log_softmax(-1)[row, token].double().cpu().numpy()
            best[inside] = (argmax_tokens(part)[row] == token).cpu().numpy()
    return found, best


_MAX_LOGITS_PER_STEP = 1 << 21
"""Logits converted at once on a CPU; few enough to stay in its cache."""


def score_unshared(
    pairs: Sequence[Pair],
    runner: ModelRunner,
    budget: BatchBudget,
    *,
    softmax_dtype: Any = None,
    on_tokens: TokenCallback | None = None,
) -> Iterator[ScoredPair]:
    """Score each pair in its own row, padded on the right, for models that do not support prefix sharing."""
    import torch

    by_inputs: dict[tuple[int, ...], list[int]] = {}
    for index, pair in enumerate(pairs):
        by_inputs.setdefault(tuple(pair.inputs), []).append(index)
    waiting = sorted(by_inputs, key=len, reverse=True)
    while waiting:
        longest = len(waiting[0])
        batch = next(pack(waiting, [longest] * len(waiting), budget.size))
        width = max(len(pairs[index].continuation) for one in batch for index in by_inputs[one])
        first = min(len(one) for one in batch) - width
        ids = torch.zeros((len(batch), longest), dtype=torch.long)
        for number, one in enumerate(batch):
            ids[number, : len(one)] = torch.tensor(one)
        positions = np.arange(max(first, 0), longest, dtype=np.int64)
        try:
            output = runner.forward(input_ids=ids.to(runner.device), use_cache=False, wanted=positions)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or not budget.halve():
                raise
            release_memory(runner.device)
            continue
        budget.record_success()
        waiting = waiting[len(batch) :]
        for number, one in enumerate(batch):
            for index in by_inputs[one]:
                continuation = np.asarray(pairs[index].continuation, np.int64)
                own_positions = (
                    np.arange(len(one) - len(continuation), len(one), dtype=np.int64) - positions[0]
                )
                with runner.count_model_time():
                    found, best = read_log_probabilities(
                        output.logits[number], own_positions, continuation, softmax_dtype
                    )
                if on_tokens is not None:
                    on_tokens(np.full(len(found), index), found)
                yield index, float(found.sum()), bool(best.all())
