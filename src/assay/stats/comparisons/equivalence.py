"""Sequential test of whether a mean discrepancy is below or above a tolerance, valid at any time.

Each document gives a discrepancy between two limits: 0 if two models behave alike. Two bets are made on every document: that the
mean discrepancy is above the tolerance δ, and that it is below. Under the opposite hypothesis the wealth of a bet is a
nonnegative supermartingale, so that it ever reaches 1 / α with probability α at most (Ville's inequality), however often it is
looked at. The wealth is the mean over several fixed stakes (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", 2024), so the result for all documents does not depend on their order.

`benchmarks/same_model.py` measures the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError

__all__ = ["Channel", "ChannelResult", "Decision", "EquivalenceResult", "decide_equivalence"]

Floats = NDArray[np.float64]
Decision = Literal["same", "different", "undecided"]

_ABOVE_STAKES = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
_ABOVE_SHARES = np.full(len(_ABOVE_STAKES), 1 / len(_ABOVE_STAKES))
_BELOW_STAKES = np.array([0.2, 0.5, 0.95])
_BELOW_SHARES = np.array([0.15, 0.25, 0.6])
"""The stakes as shares of the largest one that cannot lose everything, and how the first wealth is divided between them. A bet on
a small mean wins little with each document, so most of it has a large stake."""

_NOISY_BELOW_STAKES = np.array([0.005, 0.02, 0.05, 0.15, 0.4, 0.95])
_NOISY_BELOW_SHARES = np.array([0.1, 0.1, 0.1, 0.15, 0.15, 0.4])
"""The same for values that are negative as often as positive: a large stake loses more to their spread than it wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One kind of discrepancy, measured on every document; NaN where it cannot be measured."""

    name: str
    values: Floats
    limits: tuple[float, float] = (0.0, 1.0)
    """The range of the values: from -1 if the noise of a model against itself is subtracted."""

    upper: Floats | None = None
    """Values whose mean is at least that of the discrepancy, for the bet that it is below the tolerance; None: `values`. They
    differ if only a part of the noise is known: subtracting too much of it would hide a difference."""

    signed: bool = False
    """Whether the values are differences, whose mean must lie between -δ and δ."""

    weights: Floats | None = None
    """How much each value counts, at most 1: for clusters, their number of documents divided by the largest one. None: all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelResult:
    """The mean discrepancy of one channel over all documents, with an interval that is valid at any time."""

    name: str
    documents: int
    mean: float
    low: float
    high: float
    """Bounds with error rates α / channels (low) and β (high); both β if the values are signed."""

    needed: int | None
    """Documents that a verdict `same` may need, if further ones are like these; None if unknown or if there is a verdict."""

    signed: bool = False
    """Whether the mean is a difference with a sign instead of a discrepancy."""

    def is_within(self, delta: float) -> bool:
        """Whether the bounds exclude a mean beyond the tolerance."""
        return self.high <= delta and (not self.signed or self.low >= -delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalenceResult:
    """The verdict over all channels."""

    decision: Decision
    decided_after: int | None
    """Number of documents after which the verdict was certain enough."""

    decided_by: tuple[str, ...]
    """The channels that differ."""

    delta: float
    alpha: float
    beta: float
    channels: tuple[ChannelResult, ...]


def decide_equivalence(
    channels: Sequence[Channel],
    *,
    delta: float,
    alpha: float = 0.05,
    beta: float = 0.05,
    only_end: bool = False,
) -> EquivalenceResult:
    """Decide whether all mean discrepancies are below `delta` (`same`), or at least one is above (`different`). The mean of signed
    values is below if it is between `-delta` and `delta`.

    The documents are looked at one after the other, in the given order, until there is a verdict. The probability of `different`
    is at most `alpha` if no mean is above `delta`; that of `same` is at most `beta` if one is. With `only_end`, only all documents
    together are looked at, for a caller that adds documents and decides again.

    >>> zeros = Channel(name="scores", values=np.zeros(400))
    >>> found = decide_equivalence([zeros], delta=0.02)
    >>> found.decision, found.decided_after
    ('same', 178)
    >>> decide_equivalence([Channel(name="scores", values=np.ones(20))], delta=0.02).decision
    'different'

    Raises:
        AssayError: There are no documents, or the rates or the tolerance are out of range.
    """
    used = [channel for channel in channels if np.isfinite(channel.values).any()]
    if not used:
        raise AssayError("no discrepancy can be measured on these documents")
    if not 0 < delta < 1 or not 0 < alpha < 0.5 or not 0 < beta < 0.5:
        raise AssayError("delta must be between 0 and 1, alpha and beta between 0 and 0.5")
    above = {one.name: _bet_above(one, delta) for one in used}
    below = {one.name: _bet_below(one, delta) for one in used}
    different = np.any([wealth >= math.log(len(used) / alpha) for wealth in above.values()], axis=0)
    same = np.all([wealth >= math.log(1 / beta) for wealth in below.values()], axis=0)
    if only_end:
        different[:-1] = same[:-1] = False
    first_different, first_same = _find_first(different), _find_first(same)
    decision: Decision = "undecided"
    after: int | None = None
    by: tuple[str, ...] = ()
    if first_different is not None and (first_same is None or first_different <= first_same):
        decision, after = "different", first_different + 1
        by = tuple(
            name for name, wealth in above.items() if wealth[first_different] >= math.log(len(used) / alpha)
        )
    elif first_same is not None:
        decision, after = "same", first_same + 1
    return EquivalenceResult(
        decision=decision,
        decided_after=after,
        decided_by=by,
        delta=delta,
        alpha=alpha,
        beta=beta,
        channels=tuple(
            _summarise(one, delta, alpha / len(used), beta, open_=decision == "undecided") for one in used
        ),
    )


def _find_first(reached: NDArray[np.bool_]) -> int | None:
    return int(np.argmax(reached)) if reached.any() else None


def _bet_above(channel: Channel, mean: float) -> Floats:
    """Return the logarithm of the wealth after each document of bets that the mean is above `mean`; that of signed values: that it is
    above `mean` or below `-mean`, with half of the wealth each."""
    wealth = _compute_wealth(_gain_above(channel, channel.values, mean), _ABOVE_STAKES, _ABOVE_SHARES)
    if channel.signed:
        other = _compute_wealth(_gain_above(channel, -channel.values, mean), _ABOVE_STAKES, _ABOVE_SHARES)
        wealth = np.logaddexp(wealth, other) - math.log(2)
    return wealth


def _bet_below(channel: Channel, mean: float) -> Floats:
    """Return the same for bets that the mean is below `mean`; that of signed values: the smaller wealth of the bets that it is below
    `mean` and that it is above `-mean`."""
    stakes, shares = _choose_below_stakes(channel)
    values = channel.values if channel.upper is None else channel.upper
    wealth = _compute_wealth(_gain_below(channel, values, mean), stakes, shares)
    if channel.signed:
        other = _compute_wealth(_gain_below(channel, -values, mean), stakes, shares)
        wealth = np.minimum(wealth, other)
    return wealth


def _gain_above(channel: Channel, values: Floats, mean: float) -> Floats:
    low = channel.limits[0]
    return _weigh(channel, np.where(np.isfinite(values), (values - low) / (mean - low), 1.0))


def _gain_below(channel: Channel, values: Floats, mean: float) -> Floats:
    high = channel.limits[1]
    return _weigh(channel, np.where(np.isfinite(values), (high - values) / (high - mean), 1.0))


def _weigh(channel: Channel, gains: Floats) -> Floats:
    """Return the gains of smaller stakes on values with smaller weights: the bets are then on the weighted mean."""
    return gains if channel.weights is None else 1 + channel.weights * (gains - 1)


def _choose_below_stakes(channel: Channel) -> tuple[Floats, Floats]:
    if channel.limits[0] < 0:
        return _NOISY_BELOW_STAKES, _NOISY_BELOW_SHARES
    return _BELOW_STAKES, _BELOW_SHARES


def _compute_wealth(gains: Floats, stakes: Floats, shares: Floats) -> Floats:
    logs = np.cumsum(np.log1p(stakes[:, None] * (gains - 1)), axis=1) + np.log(shares)[:, None]
    top = logs.max(axis=0)
    wealth: Floats = top + np.log(np.exp(logs - top).sum(axis=0))
    return wealth


def _summarise(channel: Channel, delta: float, alpha: float, beta: float, *, open_: bool) -> ChannelResult:
    kept = np.isfinite(channel.values)
    low, high = channel.limits
    whole = replace(
        channel,
        values=channel.values[kept],
        upper=None if channel.upper is None else channel.upper[kept],
        signed=False,
        weights=None if channel.weights is None else channel.weights[kept],
    )

    def bound_above(one: Channel) -> float:
        return -_bisect(lambda mean: float(_bet_below(one, -mean)[-1]) >= math.log(1 / beta), -high, -low)

    if channel.signed:
        mirrored = replace(whole, values=-whole.values)
        lower = -bound_above(mirrored)
        each = [_estimate_needed(one, delta, beta) for one in (whole, mirrored)]
        needed = None if None in each else max(number for number in each if number is not None)
    else:
        lower = _bisect(lambda mean: float(_bet_above(whole, mean)[-1]) >= math.log(1 / alpha), low, high)
        needed = _estimate_needed(whole, delta, beta)
    return ChannelResult(
        name=channel.name,
        documents=len(whole.values),
        mean=float(np.average(whole.values, weights=whole.weights)),
        low=lower,
        high=bound_above(whole),
        needed=needed if open_ and needed is not None and needed > len(whole.values) else None,
        signed=channel.signed,
    )


def _estimate_needed(channel: Channel, delta: float, beta: float) -> int | None:
    """Return the documents after which the best stake alone would reach a verdict, if all are like these; None if never."""
    values = channel.values if channel.upper is None else channel.upper
    stakes, shares = _choose_below_stakes(channel)
    growth = np.log1p(stakes[:, None] * (_gain_below(channel, values, delta) - 1)).mean(axis=1)
    needed = [
        math.ceil((math.log(1 / beta) - math.log(share)) / rate)
        for rate, share in zip(growth.tolist(), shares.tolist(), strict=True)
        if rate > 0
    ]
    return min(needed, default=None)


def _bisect(is_excluded: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest value from `low` on that is excluded; `low` if none is."""
    first, last = low, high
    for _ in range(25):
        middle = (first + last) / 2
        if middle > low and is_excluded(middle):
            first = middle
        else:
            last = middle
    return first
