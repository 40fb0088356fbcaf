"""Muon in float32, batched over equal shapes. (The one in torch works in bfloat16, which is slow on a CPU.)"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized by five Newton-Schulz steps; step sizes match those of AdamW."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], rate: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                updates = orthogonalize(torch.stack([self._momentum(parameter) for parameter in parameters]))
                scale = group["lr"] * 0.2 * max(shape) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-scale)

    def _momentum(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        return parameter.grad.lerp(state["momentum"], MOMENTUM)


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Return approximately the nearest (semi-)orthogonal matrices."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    found: torch.Tensor = matrices.mT if tall else matrices
    found = found / (found.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = found @ found.mT
        found = 3.4445 * found + (-4.7750 * square + 2.0315 * square @ square) @ found
    return found.mT if tall else found
