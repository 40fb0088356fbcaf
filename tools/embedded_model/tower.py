"""A lesson for the eyes alone (vision tower and projector): what is nearest to each patch, its shape and its colour.

Learning to see through the decoder's answers is slow: a picture gives a handful of words. Here every picture gives
32 or 48 labels at a fraction of the cost. The linear heads that read them off are thrown away afterwards.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from muon import Muon
from parallel import share_gradients
from pictures import COLOURS, SHAPES, SIDE, Scene, random_scene

BATCH = 192
ACROSS = 4


def labels_of(scene: Scene) -> list[tuple[int, int, int]]:
    """For each patch: shape and colour of the thing with the nearest middle; whether a middle is in the patch."""
    patch = SIDE // ACROSS
    middles = [(left + size / 2, top + size / 2) for left, top, size in scene.spots]
    labels = []
    for place in range(ACROSS**2):
        across, down = place % ACROSS * patch + patch / 2, place // ACROSS * patch + patch / 2
        distances = [abs(across - x) + abs(down - y) for x, y in middles]
        shape, colour = scene.things[distances.index(min(distances))]
        is_here = any(x // patch == place % ACROSS and y // patch == place // ACROSS for x, y in middles)
        labels.append((SHAPES.index(shape), list(COLOURS).index(colour), int(is_here)))
    return labels


def teach_eyes(network: torch.nn.Module, seed: str, steps: int, rate: float, *, middles: bool) -> None:
    """Train tower and projector in place; the heads read the vectors as the decoder does, brought to one size.

    With `middles` they also learn in which patches the middle of a thing is, which is what counting needs.
    """
    random = Random(f"{seed} eyes")
    model: Any = network.model
    eyes = torch.nn.ModuleList([model.vision_tower, model.multi_modal_projector])
    heads = torch.nn.Linear(128, len(SHAPES) + len(COLOURS) + 2 * middles)
    matrices = [each for name, each in eyes.named_parameters() if each.ndim == 2 and "layers" in name]
    chosen = {id(each) for each in matrices}
    others = [each for each in (*eyes.parameters(), *heads.parameters()) if id(each) not in chosen]
    optimizers = [
        Muon(matrices, rate, weight_decay=0.1),
        torch.optim.AdamW(others, lr=rate, weight_decay=0.05),
    ]
    for step in range(steps):
        scenes = [random_scene(random, most=random.choice([1, 1, 3, 5])) for _ in range(BATCH)]
        wanted = torch.tensor([labels_of(scene) for scene in scenes]).flatten(0, 1)
        seen = _see(model, scenes).flatten(0, 1)
        found = heads(seen * (seen.square().mean(-1, keepdim=True) + 1e-5).rsqrt())
        shapes, colours, here = found.split([len(SHAPES), len(COLOURS), 2 * middles], -1)
        loss = cross_entropy(shapes, wanted[:, 0]) + cross_entropy(colours, wanted[:, 1])
        if middles:
            loss = loss + cross_entropy(here, wanted[:, 2])
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 50, 2 * (steps - step) / steps)
        loss.backward()
        share_gradients([*eyes.parameters(), *heads.parameters()])
        torch.nn.utils.clip_grad_norm_(eyes.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if (step + 1) % 50 == 0:
            right = [
                (part.argmax(-1) == wanted[:, place]).float().mean().item()
                for place, part in enumerate((shapes, colours, *([here] if middles else [])))
            ]
            print(
                f"eyes step {step + 1} loss {loss.item():.3f}, right: "
                + " ".join(f"{each:.3f}" for each in right),
                flush=True,
            )


def _see(model: Any, scenes: list[Scene]) -> torch.Tensor:
    pixels = np.stack([np.asarray(scene.picture, dtype=np.float32) for scene in scenes])
    inputs = torch.from_numpy(pixels.transpose(0, 3, 1, 2) / 127.5 - 1)
    return torch.stack(list(model.get_image_features(inputs).pooler_output))


@torch.no_grad()
def settle_projector(network: torch.nn.Module, seed: int, size: float = 0.5) -> None:
    """Centre the projector's output and bring it near the size of the token vectors.

    Vectors many times larger, most of it a constant, would drown what the decoder's layers add to them.
    """
    random = Random(f"{seed} projector")
    model: Any = network.model
    seen = _see(model, [random_scene(random) for _ in range(256)])
    middle = seen.mean(dim=(0, 1))
    factor = size / (seen - middle).square().mean().sqrt()
    last = model.multi_modal_projector.linear_2
    last.weight.mul_(factor)
    last.bias.sub_(middle).mul_(factor)
