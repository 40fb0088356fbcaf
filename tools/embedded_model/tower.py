"""A lesson for the vision tower alone: which shape and which colour has its middle in each patch.

Learning to see through the decoder's answers is slow: a picture gives a handful of words. Here every picture gives
32 labels at a fraction of the cost. The two linear heads are thrown away afterwards.
"""

from __future__ import annotations

from random import Random

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from muon import Muon
from pictures import COLOURS, SHAPES, SIDE, Scene, random_scene

BATCH = 192
ACROSS = 4


def labels_of(scene: Scene) -> list[tuple[int, int]]:
    """(shape, colour) per patch, counted from 1; 0 where no thing has its middle."""
    labels = [(0, 0)] * ACROSS**2
    patch = SIDE // ACROSS
    for (shape, colour), (left, top, size) in zip(scene.things, scene.spots, strict=True):
        place = (top + size // 2) // patch * ACROSS + (left + size // 2) // patch
        labels[place] = SHAPES.index(shape) + 1, list(COLOURS).index(colour) + 1
    return labels


def teach_tower(network: torch.nn.Module, seed: int, steps: int, rate: float) -> None:
    """Train the tower in place."""
    random = Random(f"{seed} tower")
    tower = network.model.vision_tower  # type: ignore[union-attr]
    heads = torch.nn.Linear(96, len(SHAPES) + 1 + len(COLOURS) + 1)
    matrices = [each for name, each in tower.named_parameters() if each.ndim == 2 and "layers" in name]
    chosen = {id(each) for each in matrices}
    others = [each for each in (*tower.parameters(), *heads.parameters()) if id(each) not in chosen]
    optimizers = [
        Muon(matrices, rate, weight_decay=0.1),
        torch.optim.AdamW(others, lr=rate, weight_decay=0.01),
    ]
    weights = [torch.tensor([0.15] + [1.0] * len(kinds)) for kinds in (SHAPES, COLOURS)]
    for step in range(steps):
        scenes = [random_scene(random, most=random.choice([1, 1, 5])) for _ in range(BATCH)]
        pixels = np.stack([np.asarray(scene.picture, dtype=np.float32) for scene in scenes])
        wanted = torch.tensor([labels_of(scene) for scene in scenes])
        seen = tower(torch.from_numpy(pixels.transpose(0, 3, 1, 2) / 127.5 - 1), output_hidden_states=True)
        shapes, colours = heads(seen.hidden_states[-1][:, 1:]).split([len(SHAPES) + 1, len(COLOURS) + 1], -1)
        loss = cross_entropy(shapes.flatten(0, 1), wanted[..., 0].flatten(), weights[0])
        loss = loss + cross_entropy(colours.flatten(0, 1), wanted[..., 1].flatten(), weights[1])
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 50, 2 * (steps - step) / steps)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tower.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if (step + 1) % 50 == 0:
            there = wanted[..., 0] > 0
            right = (shapes.argmax(-1) == wanted[..., 0])[there].float().mean().item()
            print(f"tower step {step + 1} loss {loss.item():.3f}, shapes right {right:.2f}", flush=True)
