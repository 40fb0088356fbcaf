"""Log-likelihoods of continuations, from a model that shares its work or the plain way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.hf.prefix_sharing.model_runner import Prepared, Runner
from assay.models.hf.prefix_sharing.pass_execution import Ahead, compute
from assay.models.hf.prefix_sharing.pass_planning import Plan
from assay.models.hf.prefix_sharing.prefix_tree import Node, build_tree, packed
from assay.models.hf.sampling import most_likely
from assay.models.tokens import Pair

__all__ = ["Scored", "Tell", "arrange", "look_up", "score_plainly", "score_shared"]

Scored = tuple[int, float, bool]
"""Which pair, its log-probability, and whether it is what greedy decoding writes."""

Tell = Callable[[NDArray[np.int64], NDArray[np.float64]], None]
"""Hears which pairs tokens belong to, and how likely each is; the tokens of a pair come in their order."""


_NONE = np.empty(0, np.int64)
_Asked = dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]
"""Of each node: pairs, places in the node, tokens asked for there; and the places once each, in order."""


def arrange(pairs: Sequence[Pair], runner: Runner, budget: Budget, *, rows: int) -> Ahead:
    """The passes that score pairs, what pairs share computed once; done before the model has time for them."""
    tree = build_tree([pair.inputs for pair in pairs])
    asked = _asked(tree, pairs)

    def wanted(node: Node) -> NDArray[np.int64]:
        found = asked.get(id(node))
        return _NONE if found is None else found[3]

    plan = Plan(tree, wanted, runner, rows=rows, note=lambda prepared: _questions(prepared, asked))
    return Ahead(plan, budget).begin()


def score_shared(
    pairs: Sequence[Pair],
    arranged: Ahead,
    runner: Runner,
    *,
    softmax_dtype: Any = None,
    tell: Tell | None = None,
) -> Iterator[Scored]:
    """Each pair as soon as its last token is computed."""
    totals = np.zeros(len(pairs))
    greedy = np.ones(len(pairs), dtype=bool)
    missing = np.array([len(pair.continuation) for pair in pairs])
    for planned, computed in compute(arranged, runner):
        which, rows_of, targets = planned.note
        if not len(which):
            continue
        with runner.computing():
            log_probabilities, best = look_up(computed.logits, rows_of, targets, softmax_dtype)
        if tell is not None:
            tell(which, log_probabilities)
        del planned, computed
        np.add.at(totals, which, log_probabilities)
        np.logical_and.at(greedy, which, best)
        np.subtract.at(missing, which, 1)
        for index in np.unique(which[missing[which] == 0]).tolist():
            yield index, float(totals[index]), bool(greedy[index])


def _asked(tree: Node, pairs: Sequence[Pair]) -> _Asked:
    """Whose continuation is scored in which node. The token at a place is predicted by the token before it."""
    found: _Asked = {}
    below: dict[int, list[int]] = {}
    for node in reversed(list(tree.walk())):
        members = node.ends + [index for child in node.children for index in below.pop(id(child))]
        below[id(node)] = members
        which, places, targets = [], [], []
        for index in members:
            pair = pairs[index]
            first = len(pair.context) - 1
            low, high = max(first, node.start), min(first + len(pair.continuation), node.end)
            if low < high:
                which.append(np.full(high - low, index, np.int64))
                places.append(np.arange(low - node.start, high - node.start, dtype=np.int64))
                targets.append(np.asarray(pair.continuation[low - first : high - first], np.int64))
        if which:
            each = np.concatenate(places)
            found[id(node)] = (np.concatenate(which), each, np.concatenate(targets), np.unique(each))
    return found


def _questions(
    prepared: Prepared, asked: _Asked
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The pairs, rows of logits and tokens a pass will have answers for."""
    which, rows, targets = [_NONE], [_NONE], [_NONE]
    for piece in prepared.pieces:
        if id(piece.node) not in asked:
            continue
        who, places, tokens, _ = asked[id(piece.node)]
        inside = (places >= piece.low) & (places < piece.high)
        of = prepared.rows[places[inside] - piece.low + piece.offset]
        known = of >= 0
        which.append(who[inside][known])
        rows.append(of[known])
        targets.append(tokens[inside][known])
    return np.concatenate(which), np.concatenate(rows), np.concatenate(targets)


def look_up(
    logits: Any, rows: NDArray[np.int64], targets: NDArray[np.int64], softmax_dtype: Any
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Log-probabilities of tokens, and whether each is the most likely one."""
    import torch

    found = np.empty(len(rows))
    best = np.empty(len(rows), dtype=bool)
    on_processor = logits.device.type == "cpu"
    step = max(1, _AT_ONCE // logits.shape[-1]) if on_processor else max(1, len(logits))
    with torch.inference_mode():
        for first in range(0, len(logits), step):
            inside = np.flatnonzero((rows >= first) & (rows < first + step))
            if not len(inside):
                continue
            part = logits[first : first + step].to(softmax_dtype or torch.float32)
            row, token = (torch.from_numpy(one[inside]).to(logits.device) for one in (rows - first, targets))
            # not `logsumexp`, which rounds less on a processor: lm-eval's numbers come from this
            found[inside] = part.log_softmax(-1)[row, token].double().cpu().numpy()
            best[inside] = (most_likely(part)[row] == token).cpu().numpy()
    return found, best


_AT_ONCE = 1 << 21
"""Logits that a processor turns into probabilities at once: few enough to be still in its cache."""


def score_plainly(
    pairs: Sequence[Pair],
    runner: Runner,
    budget: Budget,
    *,
    rows: int,
    softmax_dtype: Any = None,
    tell: Tell | None = None,
) -> Iterator[Scored]:
    """Each pair on its own row, padded at its right, nothing shared but equal rows: for models that keep no plain cache."""
    import torch

    by_inputs: dict[tuple[int, ...], list[int]] = {}
    for index, pair in enumerate(pairs):
        by_inputs.setdefault(tuple(pair.inputs), []).append(index)
    waiting = sorted(by_inputs, key=len, reverse=True)
    while waiting:
        longest = len(waiting[0])
        batch = next(packed(waiting, [longest] * len(waiting), budget.size))
        width = max(len(pairs[index].continuation) for one in batch for index in by_inputs[one])
        first = min(len(one) for one in batch) - width
        ids = torch.zeros((len(batch), longest), dtype=torch.long)
        for number, one in enumerate(batch):
            ids[number, : len(one)] = torch.tensor(one)
        places = np.arange(max(first, 0), longest, dtype=np.int64)
        try:
            output = runner.forward(input_ids=ids.to(runner.device), use_cache=False, wanted=places)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or not budget.halve():
                raise
            free_memory(runner.device)
            continue
        budget.succeeded()
        waiting = waiting[len(batch) :]
        for number, one in enumerate(batch):
            for index in by_inputs[one]:
                continuation = np.asarray(pairs[index].continuation, np.int64)
                at = np.arange(len(one) - len(continuation), len(one), dtype=np.int64) - places[0]
                with runner.computing():
                    found, best = look_up(output.logits[number], at, continuation, softmax_dtype)
                if tell is not None:
                    tell(np.full(len(found), index), found)
                yield index, float(found.sum()), bool(best.all())
