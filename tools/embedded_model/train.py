"""Train the embedded model: `python tools/embedded_model/train.py --output FOLDER`.

Seeded, one thread; under `torchrun --nproc-per-node 2`, two processes share the last phases. A checkpoint folder that
Assay and transformers can load is written every few hundred steps. `--state FILE` resumes an interrupted run.
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

from data_parallel import average_gradients, init_process_group
from muon import Muon
from network import build_network, save_folder
from tokenizer_files import PAD
from training_rows import DRILLS, MIXTURE, PHASES, Row, make_plain_row, make_row
from vision_training import rescale_projector, train_vision

SEED = 1234
STEPS, VISION_STEP, VISION_STEPS = 7810, 3900, 500
PARALLEL_STEP, MORE_VISION_STEPS = 4500, 300
"""From PARALLEL_STEP on, two processes share the work, and vision and decoder train together."""
BATCH_TOKENS, PARALLEL_BATCH_TOKENS = 3072, 1536
VISION_RATE_SHARE = 0.5
POOL_ROWS = 512


def iterate_batches(random: Random, start: int = 0) -> Iterator[list[Row]]:
    """Yield batches of rows of similar length, about BATCH_TOKENS tokens each, in random order."""
    count, max_things = start, PARALLEL_BATCH_TOKENS if start >= PARALLEL_STEP else BATCH_TOKENS
    while True:
        phase = [phase for phase in PHASES if phase.start <= count][-1]
        pool = sorted((make_row(random, phase) for _ in range(POOL_ROWS)), key=lambda row: len(row.ids))
        found: list[list[Row]] = [[]]
        for row in pool:
            if found[-1] and len(row.ids) * (len(found[-1]) + 1) > max_things:
                found.append([])
            found[-1].append(row)
        random.shuffle(found)
        yield from found
        count += len(found)


def to_tensors(batch: list[Row]) -> dict[str, torch.Tensor | None]:
    """Return right-padded ids and weights, and images normalized to -1..1."""
    max_length = max(len(row.ids) for row in batch)
    ids = torch.full((len(batch), max_length), PAD)
    weights = torch.zeros((len(batch), max_length))
    for number, row in enumerate(batch):
        ids[number, : len(row.ids)] = torch.tensor(row.ids)
        weights[number, : len(row.weights)] = torch.tensor(row.weights)
    pictures = [np.asarray(picture, dtype=np.float32) for row in batch for picture in row.pictures]
    pixels = None
    if pictures:
        pixels = torch.from_numpy(np.stack(pictures).transpose(0, 3, 1, 2) / 127.5 - 1)
    return {"ids": ids, "weights": weights, "pixels": pixels}


def compute_loss(network: torch.nn.Module, batch: list[Row]) -> torch.Tensor:
    """Return the weighted cross entropy of the next token. Causality hides the right padding."""
    tensors = to_tensors(batch)
    ids, weights = tensors["ids"], tensors["weights"]
    assert ids is not None and weights is not None
    logits = network(input_ids=ids, pixel_values=tensors["pixels"], use_cache=False).logits
    wanted = weights[:, 1:] > 0
    losses = cross_entropy(logits[:, :-1][wanted], ids[:, 1:][wanted], reduction="none")
    chosen = weights[:, 1:][wanted]
    return (losses * chosen).sum() / chosen.sum()


def make_optimizers(
    network: torch.nn.Module, rate: float, *, slow_vision: bool = False
) -> list[torch.optim.Optimizer]:
    """Return Muon for the hidden matrices, which needs fewer steps, and AdamW for the rest."""
    hidden: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    vision_parameters: tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]] = [], []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_hidden = parameter.ndim == 2 and "layers" in name
        if slow_vision and ("vision_tower" in name or "multi_modal_projector" in name):
            vision_parameters[0 if is_hidden else 1].append(parameter)
        else:
            (hidden if is_hidden else others).append(parameter)
    groups: list[list[dict[str, Any]]] = [[{"params": hidden}], [{"params": others, "share": 0.5}]]
    if slow_vision:
        groups[0].append({"params": vision_parameters[0], "share": VISION_RATE_SHARE})
        groups[1].append({"params": vision_parameters[1], "share": VISION_RATE_SHARE / 2})
    muon = Muon(groups[0], rate, weight_decay=0.05)
    adam = torch.optim.AdamW(groups[1], lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    return [muon, adam]


def compute_learning_rate(step: int, peak: float) -> float:
    """Return the learning rate: warm-up, constant, two decays; again, lower, after each vision training."""
    steps = [
        0,
        100,
        2160,
        2500,
        VISION_STEP,
        VISION_STEP + 30,
        PARALLEL_STEP - 1,
        PARALLEL_STEP,
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


def retrain_vision(network: torch.nn.Module, rate: float) -> None:
    """Reinitialize tower and projector, train them alone, and freeze them while the decoder learns to read them."""
    fresh = build_network()
    for part in ("vision_tower", "multi_modal_projector"):
        getattr(network.model, part).load_state_dict(getattr(fresh.model, part).state_dict())
    train_vision(network, str(SEED), VISION_STEPS, rate, centers=False)
    rescale_projector(network, SEED)
    set_vision_trainable(network, learning=False)


def set_vision_trainable(network: torch.nn.Module, *, learning: bool) -> None:
    """Set whether tower and projector train with the decoder."""
    for part in ("vision_tower", "multi_modal_projector"):
        getattr(network.model, part).requires_grad_(requires_grad=learning)


def continue_vision_training(network: torch.nn.Module, rate: float, rank: int) -> None:
    """Train tower and projector alone again, with centers; afterwards they train with the decoder."""
    set_vision_trainable(network, learning=True)
    train_vision(network, f"{SEED} {rank} more", MORE_VISION_STEPS, rate, centers=True)
    rescale_projector(network, SEED)


def train_step(
    network: torch.nn.Module, optimizers: list[torch.optim.Optimizer], batch: list[Row], rate: float
) -> float:
    """Run one training step and return its loss."""
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)
    loss = compute_loss(network, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    average_gradients(list(network.parameters()))
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


@torch.no_grad()
def measure_skills(network: torch.nn.Module, count: int = 40) -> str:
    """Return for each skill and drill the share of rows in which every answer token is the most likely."""
    random, found = Random(SEED), []
    for _, skill in (*MIXTURE, *DRILLS):
        examples = [skill(random) for _ in range(count)]
        rows = [make_plain_row(random, each if isinstance(each, list) else [each]) for each in examples]
        tensors = to_tensors(rows)
        ids, weights = tensors["ids"], tensors["weights"]
        assert ids is not None and weights is not None
        logits = network(input_ids=ids, pixel_values=tensors["pixels"], use_cache=False).logits
        wrong = (logits[:, :-1].argmax(-1) != ids[:, 1:]) & (weights[:, 1:] > 0)
        found.append(f"{skill.__module__}.{skill.__name__} {1 - wrong.any(-1).float().mean().item():.2f}")
    return ", ".join(found)


def parse_arguments() -> argparse.Namespace:
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
    arguments = parse_arguments()
    rank = init_process_group()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    network = build_network()
    optimizers = make_optimizers(network, arguments.rate)
    done = 0
    if arguments.state and arguments.state.exists():
        state = torch.load(arguments.state, weights_only=True)
        network.load_state_dict(state["network"])
        done = state["done"]
        if done > VISION_STEP:
            set_vision_trainable(network, learning=done > PARALLEL_STEP)
            optimizers = make_optimizers(network, arguments.rate, slow_vision=done > PARALLEL_STEP)
        if done not in (VISION_STEP, PARALLEL_STEP):  # both start with fresh optimizers
            for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(kept)
    print(
        f"{sum(parameter.numel() for parameter in network.parameters()):,} parameters, {done} steps done",
        flush=True,
    )
    started, losses = time.monotonic(), []
    stream = chain(
        islice(iterate_batches(Random(SEED)), done, PARALLEL_STEP) if done < PARALLEL_STEP else (),
        iterate_batches(Random(f"{SEED} {rank} {max(done, PARALLEL_STEP)}"), max(done, PARALLEL_STEP)),
    )
    for step, batch in zip(range(done, STEPS), stream, strict=False):
        if step == VISION_STEP:
            retrain_vision(network, arguments.rate)
            optimizers = make_optimizers(network, arguments.rate)
        if step == PARALLEL_STEP:
            continue_vision_training(network, arguments.rate, rank)
            optimizers = make_optimizers(network, arguments.rate, slow_vision=True)
        losses.append(train_step(network, optimizers, batch, compute_learning_rate(step, arguments.rate)))
        if rank == 0 and (step + 1) % 50 == 0:
            print(
                f"step {step + 1} loss {sum(losses) / len(losses):.4f} {time.monotonic() - started:.0f} s",
                flush=True,
            )
            losses.clear()
        if rank == 0 and ((step + 1) % arguments.every == 0 or step + 1 == STEPS):
            print(measure_skills(network), flush=True)
            save_folder(network, arguments.output)
            if arguments.state:
                kept = [optimizer.state_dict() for optimizer in optimizers]
                torch.save(
                    {"network": network.state_dict(), "optimizers": kept, "done": step + 1}, arguments.state
                )


if __name__ == "__main__":
    main()
