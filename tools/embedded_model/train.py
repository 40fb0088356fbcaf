"""Train the embedded model: `python tools/embedded_model/train.py --output FOLDER`.

Seeded, one thread; under `torchrun --nproc-per-node 2` two processes share the last phases. A checkpoint folder
that Assay and transformers can load is written every few hundred steps. With `--state FILE` a run that was stopped
goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from muon import Muon
from network import build_network, save_folder
from parallel import join_others, share_gradients
from rows import DRILLS, MIXTURE, PHASES, Row, plain_row, random_row
from tower import settle_projector, teach_eyes
from vocabulary import PAD

SEED = 1234
STEPS, EYES_AT, EYES_STEPS = 7810, 3900, 500
TOGETHER_AT, MORE_EYES_STEPS = 4500, 300
"""From TOGETHER_AT on two processes share the work, and eyes and decoder learn together."""
BATCH_TOKENS, TOGETHER_TOKENS = 3072, 1536
EYES_SHARE = 0.5
POOL = 512


def batches(random: Random, start: int = 0) -> Iterator[list[Row]]:
    """Rows of similar length together, about BATCH_TOKENS tokens each; the order of batches is random."""
    count, most = start, TOGETHER_TOKENS if start >= TOGETHER_AT else BATCH_TOKENS
    while True:
        phase = [phase for phase in PHASES if phase.start <= count][-1]
        pool = sorted((random_row(random, phase) for _ in range(POOL)), key=lambda row: len(row.ids))
        found: list[list[Row]] = [[]]
        for row in pool:
            if found[-1] and len(row.ids) * (len(found[-1]) + 1) > most:
                found.append([])
            found[-1].append(row)
        random.shuffle(found)
        yield from found
        count += len(found)


def to_tensors(batch: list[Row]) -> dict[str, torch.Tensor | None]:
    """Right-padded ids and weights; pictures normalised to -1..1."""
    longest = max(len(row.ids) for row in batch)
    ids = torch.full((len(batch), longest), PAD)
    weights = torch.zeros((len(batch), longest))
    for number, row in enumerate(batch):
        ids[number, : len(row.ids)] = torch.tensor(row.ids)
        weights[number, : len(row.weights)] = torch.tensor(row.weights)
    pictures = [np.asarray(picture, dtype=np.float32) for row in batch for picture in row.pictures]
    pixels = None
    if pictures:
        pixels = torch.from_numpy(np.stack(pictures).transpose(0, 3, 1, 2) / 127.5 - 1)
    return {"ids": ids, "weights": weights, "pixels": pixels}


def loss_of(network: torch.nn.Module, batch: list[Row]) -> torch.Tensor:
    """Weighted cross entropy of the next token. Rows are right-padded, so causality hides the padding."""
    tensors = to_tensors(batch)
    ids, weights = tensors["ids"], tensors["weights"]
    assert ids is not None and weights is not None
    logits = network(input_ids=ids, pixel_values=tensors["pixels"], use_cache=False).logits
    wanted = weights[:, 1:] > 0
    losses = cross_entropy(logits[:, :-1][wanted], ids[:, 1:][wanted], reduction="none")
    chosen = weights[:, 1:][wanted]
    return (losses * chosen).sum() / chosen.sum()


def make_optimizers(
    network: torch.nn.Module, rate: float, *, slow_eyes: bool = False
) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, which learns these skills in fewer steps; AdamW for the rest."""
    hidden: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    eyes: tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]] = [], []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_hidden = parameter.ndim == 2 and "layers" in name
        if slow_eyes and ("vision_tower" in name or "multi_modal_projector" in name):
            eyes[0 if is_hidden else 1].append(parameter)
        else:
            (hidden if is_hidden else others).append(parameter)
    groups: list[list[dict[str, Any]]] = [[{"params": hidden}], [{"params": others, "share": 0.5}]]
    if slow_eyes:
        groups[0].append({"params": eyes[0], "share": EYES_SHARE})
        groups[1].append({"params": eyes[1], "share": EYES_SHARE / 2})
    muon = Muon(groups[0], rate, weight_decay=0.05)
    adam = torch.optim.AdamW(groups[1], lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    return [muon, adam]


def rate_at(step: int, peak: float) -> float:
    """Short warm-up, flat, falling in two slopes; again, lower, after each of the two lessons for the eyes."""
    steps = [
        0,
        100,
        2160,
        2500,
        EYES_AT,
        EYES_AT + 30,
        TOGETHER_AT - 1,
        TOGETHER_AT,
        4550,
        5499,
        5500,
        6600,
        7400,
        7420,
        7650,
        7660,
    ]
    rates = [0.01, 1.0, 1.0, 0.76, 0.01, 0.6, 0.01, 0.02, 0.6, 0.6, 0.45, 0.3, 0.01, 0.15, 0.01, 0.12]
    return peak * float(np.interp(step, [*steps, STEPS], [*rates, 0.01]))


def replace_eyes(network: torch.nn.Module, rate: float) -> None:
    """Fresh tower and projector, taught apart; from then on they stay as they are, and the decoder learns to read them."""
    fresh = build_network()
    for part in ("vision_tower", "multi_modal_projector"):
        getattr(network.model, part).load_state_dict(getattr(fresh.model, part).state_dict())
    teach_eyes(network, str(SEED), EYES_STEPS, rate, middles=False)
    settle_projector(network, SEED)
    open_eyes(network, learning=False)


def open_eyes(network: torch.nn.Module, *, learning: bool) -> None:
    """Whether tower and projector learn with the decoder."""
    for part in ("vision_tower", "multi_modal_projector"):
        getattr(network.model, part).requires_grad_(requires_grad=learning)


def improve_eyes(network: torch.nn.Module, rate: float, rank: int) -> None:
    """The same lesson once more, from where they are, and with the middles of things; then they learn with the rest."""
    open_eyes(network, learning=True)
    teach_eyes(network, f"{SEED} {rank} more", MORE_EYES_STEPS, rate, middles=True)
    settle_projector(network, SEED)


def learn(
    network: torch.nn.Module, optimizers: list[torch.optim.Optimizer], batch: list[Row], rate: float
) -> float:
    """One step; returns its loss."""
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)
    loss = loss_of(network, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    share_gradients(list(network.parameters()))
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


@torch.no_grad()
def probe(network: torch.nn.Module, count: int = 40) -> str:
    """A quick look at each skill and drill: share of rows in which every token of the answers is the likeliest one."""
    random, found = Random(SEED), []
    for _, skill in (*MIXTURE, *DRILLS):
        made = [skill(random) for _ in range(count)]
        rows = [plain_row(random, each if isinstance(each, list) else [each]) for each in made]
        tensors = to_tensors(rows)
        ids, weights = tensors["ids"], tensors["weights"]
        assert ids is not None and weights is not None
        logits = network(input_ids=ids, pixel_values=tensors["pixels"], use_cache=False).logits
        wrong = (logits[:, :-1].argmax(-1) != ids[:, 1:]) & (weights[:, 1:] > 0)
        found.append(f"{skill.__module__}.{skill.__name__} {1 - wrong.any(-1).float().mean().item():.2f}")
    return ", ".join(found)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument(
        "--threads", type=int, default=1, help="changes speed, and the last bits of the result"
    )
    parser.add_argument("--every", type=int, default=250, help="steps between checkpoints")
    parser.add_argument("--state", type=Path, help="file to resume from, if it exists, and to save to")
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    rank = join_others()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    network = build_network()
    optimizers = make_optimizers(network, arguments.rate)
    done = 0
    if arguments.state and arguments.state.exists():
        state = torch.load(arguments.state, weights_only=True)
        network.load_state_dict(state["network"])
        done = state["done"]
        if done > EYES_AT:
            open_eyes(network, learning=done > TOGETHER_AT)
            optimizers = make_optimizers(network, arguments.rate, slow_eyes=done > TOGETHER_AT)
        if done not in (EYES_AT, TOGETHER_AT):  # both start with fresh optimizers
            for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(kept)
    print(
        f"{sum(parameter.numel() for parameter in network.parameters()):,} parameters, {done} steps done",
        flush=True,
    )
    started, losses = time.monotonic(), []
    stream = chain(
        islice(batches(Random(SEED)), done, TOGETHER_AT) if done < TOGETHER_AT else (),
        batches(Random(f"{SEED} {rank} {max(done, TOGETHER_AT)}"), max(done, TOGETHER_AT)),
    )
    for step, batch in zip(range(done, STEPS), stream, strict=False):
        if step == EYES_AT:
            replace_eyes(network, arguments.rate)
            optimizers = make_optimizers(network, arguments.rate)
        if step == TOGETHER_AT:
            improve_eyes(network, arguments.rate, rank)
            optimizers = make_optimizers(network, arguments.rate, slow_eyes=True)
        losses.append(learn(network, optimizers, batch, rate_at(step, arguments.rate)))
        if rank == 0 and (step + 1) % 50 == 0:
            print(
                f"step {step + 1} loss {sum(losses) / len(losses):.4f} {time.monotonic() - started:.0f} s",
                flush=True,
            )
            losses.clear()
        if rank == 0 and ((step + 1) % arguments.every == 0 or step + 1 == STEPS):
            print(probe(network), flush=True)
            save_folder(network, arguments.output)
            if arguments.state:
                kept = [optimizer.state_dict() for optimizer in optimizers]
                torch.save(
                    {"network": network.state_dict(), "optimizers": kept, "done": step + 1}, arguments.state
                )


if __name__ == "__main__":
    main()
