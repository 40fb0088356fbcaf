"""Compute how narrow any interval can be that also covers in other rows: lower bounds of the width, whatever the method.

The bounds hold for all intervals of a mean that move and scale with the scores. For losses, which have a limit at 0, they only scale.
Such an interval depends on the *shape* of a sample alone. Given the shape, the distribution of the true mean relative to the sample
is known for each family: it is the posterior distribution with the Haar prior. For multipliers λ ≥ 0 of the families k with coverage
goals c, every interval that reaches the goals has an expected width of at least

    Σ λₖ cₖ + E[min over sets J of (width of J - Σ λₖ wₖ Pₖ(mean in J | shape))]

in the first family, where wₖ is the likelihood of the shape in family k divided by that in the first one. The best set contains the
points at which the weighted densities exceed the price of width. Shapes are drawn from a mixture of the families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bound", "Shapes", "compute_bounds", "find_bound"]

Floats = NDArray[np.float64]
_STEPS = 150
_BLOCK = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleFamily:
    """A family of distributions up to their scale, and their location if they are not limited."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, int]], Floats]
    log_density: Callable[[Floats], Floats]
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Drawn shapes, with what each family says of them."""

    densities: Floats
    """Density of the true mean, in units of the sample, times the likelihood of the shape divided by that in the mixture: by family,
    shape and grid point."""

    prices: Floats
    """Expected width of a unit interval in the first family, times the ratio of likelihoods: by shape."""

    step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The lower bound of a width, its Monte Carlo error, and the multipliers of the families."""

    width: float
    error: float
    multipliers: tuple[float, ...]


GAMMA = ScaleFamily(
    name="gamma, shape 4",
    draw=lambda rng, shape: rng.gamma(4, 0.5, shape),
    log_density=lambda x: 3 * np.log(x) - 2 * x + math.log(16 / 6),
    mean=2.0,
)
LOGNORMAL = ScaleFamily(
    name="lognormal",
    draw=lambda rng, shape: rng.lognormal(0, 1, shape),
    log_density=lambda x: -np.log(x) - np.log(x) ** 2 / 2 - math.log(2 * math.pi) / 2,
    mean=math.exp(0.5),
)
STUDENT = ScaleFamily(
    name="Student's t, 3 degrees",
    draw=lambda rng, shape: rng.standard_t(3, shape),
    log_density=lambda x: -2 * np.log1p(x * x / 3) + math.log(2 / (math.pi * math.sqrt(3))),
    mean=0.0,
)
EXPONENTIAL = ScaleFamily(
    name="exponential minus 1",
    draw=lambda rng, shape: rng.exponential(1, shape) - 1,
    log_density=lambda x: np.where(x >= -1, -x - 1, -1e9),
    mean=0.0,
)


def describe_limited_shapes(families: Sequence[ScaleFamily], samples: Floats) -> Shapes:
    """Describe the shapes of samples with a limit at 0. The grid is that of the true mean divided by the sample's."""
    size = samples.shape[1]
    samples = samples / samples.mean(axis=1, keepdims=True)
    grid = np.linspace(0.02, 12, 600)
    densities, prices = [], []
    for family in families:
        scales = grid / family.mean
        logs = np.stack([family.log_density(samples / one).sum(axis=1) for one in scales], axis=1)
        joint = np.exp(logs - (size + 1) * np.log(scales)) / family.mean
        densities.append(joint)
        prices.append((joint / scales).sum(axis=1))
    return _normalise(np.stack(densities), prices[0], grid[1] - grid[0])


def describe_unlimited_shapes(families: Sequence[ScaleFamily], samples: Floats) -> Shapes:
    """Describe the shapes of samples without limits. The grid is that of the true mean minus the sample's, in standard errors."""
    size = samples.shape[1]
    samples = samples - samples.mean(axis=1, keepdims=True)
    samples /= samples.std(axis=1, ddof=1, keepdims=True) / math.sqrt(size)
    grid, scales = np.linspace(-9, 9, 121), np.exp(np.linspace(math.log(0.05), math.log(40), 50))
    densities, prices = [], []
    for family in families:
        joint, price = np.empty((len(samples), len(grid))), np.empty(len(samples))
        for start in range(0, len(samples), _BLOCK):
            block = samples[start : start + _BLOCK]
            total, weighted = np.zeros((len(block), len(grid))), np.zeros(len(block))
            for scale in scales:
                steps = (block[:, None, :] - grid[None, :, None]) / scale
                likelihood = np.exp(family.log_density(steps).sum(axis=2) - size * math.log(scale))
                total += likelihood
                weighted += likelihood.sum(axis=1) / scale
            joint[start : start + _BLOCK], price[start : start + _BLOCK] = total, weighted
        densities.append(joint)
        prices.append(price)
    return _normalise(np.stack(densities), prices[0], grid[1] - grid[0])


def _draw_mixture(
    families: Sequence[ScaleFamily], shape: tuple[int, int], rng: np.random.Generator
) -> Floats:
    """Draw as many samples from each family, one family after the other."""
    count, size = shape
    return np.concatenate([family.draw(rng, (count // len(families), size)) for family in families])


def _normalise(joint: Floats, price: Floats, step: float) -> Shapes:
    """Divide by the likelihood of each shape in the mixture of the families."""
    mixture = joint.sum(axis=2).mean(axis=0) * step
    return Shapes(densities=joint / mixture[:, None], prices=price * step / mixture, step=step)


def find_bound(shapes: Shapes, goals: Sequence[float]) -> Bound:
    """Return the largest lower bound of the width in the first family, by gradient ascent over the multipliers.

    The multipliers are found with one half of the shapes; the bound is that of the other half, which makes it unbiased.
    """
    wanted = np.array(goals)
    multipliers = np.full(len(goals), 5.0)
    fitted, tested = slice(0, None, 2), slice(1, None, 2)
    best, found = -math.inf, multipliers
    for turn in range(_STEPS):
        value, gradient = _evaluate(shapes, fitted, multipliers, wanted)
        if value.mean() > best:
            best, found = float(value.mean()), multipliers.copy()
        multipliers = np.maximum(0.0, multipliers + 150 / (1 + turn * 0.05) * gradient)
    value, _ = _evaluate(shapes, tested, found, wanted)
    return Bound(
        width=float(value.mean()),
        error=float(value.std() / math.sqrt(len(value))),
        multipliers=tuple(found.tolist()),
    )


def _evaluate(shapes: Shapes, part: slice, multipliers: Floats, goals: Floats) -> tuple[Floats, Any]:
    """Return the bound of each shape, and the gradient of their mean.

    The likelihood ratios have a mean of 1. Subtracted from the terms of the formula above, they leave the smaller one of the weighted
    densities and the price, which varies little.
    """
    densities, prices = shapes.densities[:, part], shapes.prices[part]
    weighted = np.tensordot(multipliers, densities, axes=1)
    outside = weighted < prices[:, None]
    value = np.minimum(weighted, prices[:, None]).sum(axis=1) * shapes.step - multipliers @ (1 - goals)
    missed = (densities * outside).sum(axis=2).mean(axis=1) * shapes.step
    return value, missed - (1 - goals)


def compute_bounds(shapes: int = 8000) -> dict[str, tuple[Bound, Bound]]:
    """Return, for each question, the bound of the first family alone and the bound if the second one is covered, too."""
    found = {}
    for name, families, describe, size, count in (
        ("losses, 5", (GAMMA, LOGNORMAL), describe_limited_shapes, 5, shapes),
        ("losses, 10", (GAMMA, LOGNORMAL), describe_limited_shapes, 10, shapes),
        ("unlimited, 5", (STUDENT, EXPONENTIAL), describe_unlimited_shapes, 5, shapes // 4),
    ):
        rng = np.random.default_rng(size)
        drawn = describe(families, _draw_mixture(families, (count, size), rng))
        goal = 0.90 if size < 10 else 0.93
        found[name] = find_bound(drawn, (goal, 0.0)), find_bound(drawn, (goal, goal))
    return found


if __name__ == "__main__":
    for title, pair in compute_bounds().items():
        print(title, *pair, sep="\n  ")
