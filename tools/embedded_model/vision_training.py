"""Train the vision tower and projector alone: predict the shape and color of the thing nearest to each patch.

Training vision through the answers of the decoder is slow, because an image gives only a few words. Here every image gives
32 or 48 labels at a fraction of the cost. The linear heads that predict them are discarded afterwards.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from data_parallel import average_gradients
from muon import Muon
from shape_images import COLOURS, SHAPES, SIDE, Scene, draw_random_scene

BATCH = 192
PATCHES_PER_SIDE = 4


def make_patch_labels(scene: Scene) -> list[tuple[int, int, int]]:
    """Return for each patch the shape and color of the nearest thing, and whether a center is in the patch."""
    patch = SIDE // PATCHES_PER_SIDE
    centers = [(left + size / 2, top + size / 2) for left, top, size in scene.boxes]
    labels = []
    for place in range(PATCHES_PER_SIDE**2):
        across, down = (
            place % PATCHES_PER_SIDE * patch + patch / 2,
            place // PATCHES_PER_SIDE * patch + patch / 2,
        )
        distances = [abs(across - x) + abs(down - y) for x, y in centers]
        shape, colour = scene.things[distances.index(min(distances))]
        is_here = any(
            x // patch == place % PATCHES_PER_SIDE and y // patch == place // PATCHES_PER_SIDE
            for x, y in centers
        )
        labels.append((SHAPES.index(shape), list(COLOURS).index(colour), int(is_here)))
    return labels


def train_vision(network: torch.nn.Module, seed: str, steps: int, rate: float, *, centers: bool) -> None:
    """Train tower and projector in place. The heads read normalized vectors, as the decoder does.

    With `centers`, they also learn which patches contain the center of a thing, which counting needs.
    """
    random = Random(f"{seed} eyes")
    model: Any = network.model
    vision = torch.nn.ModuleList([model.vision_tower, model.multi_modal_projector])
    heads = torch.nn.Linear(128, len(SHAPES) + len(COLOURS) + 2 * centers)
    matrices = [each for name, each in vision.named_parameters() if each.ndim == 2 and "layers" in name]
    chosen = {id(each) for each in matrices}
    others = [each for each in (*vision.parameters(), *heads.parameters()) if id(each) not in chosen]
    optimizers = [
        Muon(matrices, rate, weight_decay=0.1),
        torch.optim.AdamW(others, lr=rate, weight_decay=0.05),
    ]
    for step in range(steps):
        scenes = [draw_random_scene(random, max_things=random.choice([1, 1, 3, 5])) for _ in range(BATCH)]
        wanted = torch.tensor([make_patch_labels(scene) for scene in scenes]).flatten(0, 1)
        seen = _encode_scenes(model, scenes).flatten(0, 1)
        found = heads(seen * (seen.square().mean(-1, keepdim=True) + 1e-5).rsqrt())
        shapes, colours, here = found.split([len(SHAPES), len(COLOURS), 2 * centers], -1)
        loss = cross_entropy(shapes, wanted[:, 0]) + cross_entropy(colours, wanted[:, 1])
        if centers:
            loss = loss + cross_entropy(here, wanted[:, 2])
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 50, 2 * (steps - step) / steps)
        loss.backward()
        average_gradients([*vision.parameters(), *heads.parameters()])
        torch.nn.utils.clip_grad_norm_(vision.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if (step + 1) % 50 == 0:
            right = [
                (part.argmax(-1) == wanted[:, place]).float().mean().item()
                for place, part in enumerate((shapes, colours, *([here] if centers else [])))
            ]
            print(
                f"vision step {step + 1} loss {loss.item():.3f}, accuracy: "
                + " ".join(f"{each:.3f}" for each in right),
                flush=True,
            )


def _encode_scenes(model: Any, scenes: list[Scene]) -> torch.Tensor:
    pixels = np.stack([np.asarray(scene.picture, dtype=np.float32) for scene in scenes])
    inputs = torch.from_numpy(pixels.transpose(0, 3, 1, 2) / 127.5 - 1)
    return torch.stack(list(model.get_image_features(inputs).pooler_output))


@torch.no_grad()
def rescale_projector(network: torch.nn.Module, seed: int, size: float = 0.5) -> None:
    """Center the output of the projector and scale it to the size of the token vectors.

    Vectors that are many times larger and mostly constant would dominate the contributions of the decoder layers.
    """
    random = Random(f"{seed} projector")
    model: Any = network.model
    seen = _encode_scenes(model, [draw_random_scene(random) for _ in range(256)])
    middle = seen.mean(dim=(0, 1))
    factor = size / (seen - middle).square().mean().sqrt()
    last = model.multi_modal_projector.linear_2
    last.weight.mul_(factor)
    last.bias.sub_(middle).mul_(factor)
