from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.groups import GroupPart, compute_stratified_interval, pool_parts
from assay.stats.intervals.confidence_intervals import wilson_interval

PARTS = [
    GroupPart(value=0.61, stderr=0.0421, size=100),
    GroupPart(value=0.43, stderr=0.0713, size=37),
    GroupPart(value=0.5512, stderr=0.0199, size=512),
]


def test_documents_weigh_alike_by_default() -> None:
    pooled = pool_parts(PARTS)
    assert (pooled.value, pooled.stderr, pooled.size) == (0.5533503852080124, 0.017467987715201073, 649)


def test_tasks_weigh_alike_when_asked_to() -> None:
    pooled = pool_parts(PARTS, weight_by_size=False)
    assert (pooled.value, pooled.stderr) == (0.5304000000000001, 0.028386440424963466)


def test_the_older_error_of_a_mean_of_tasks_is_still_to_be_had() -> None:
    assert pool_parts(PARTS, weight_by_size=False, pooled_error=True).stderr == 0.017467987715201073


@pytest.mark.parametrize("weight_by_size", [True, False])
def test_a_task_without_an_error_leaves_the_group_without_one(weight_by_size: bool) -> None:
    pooled = pool_parts([*PARTS, GroupPart(value=0.5, stderr=None, size=1)], weight_by_size=weight_by_size)
    assert pooled.stderr is None


def test_tasks_of_one_document_have_no_pooled_error() -> None:
    assert (
        pool_parts(
            [GroupPart(value=1.0, stderr=0.0, size=1), GroupPart(value=0.0, stderr=0.0, size=1)]
        ).stderr
        is None
    )


def test_no_tasks_are_not_zero() -> None:
    with pytest.raises(AssayError, match="nothing to pool"):
        pool_parts([])


def test_strata_give_the_error_of_their_weighted_mean() -> None:
    parts = [GroupPart(value=0.2, stderr=0.03, size=100), GroupPart(value=0.9, stderr=0.01, size=300)]
    micro, macro = (compute_stratified_interval(parts, weight_by_size=by_size) for by_size in (True, False))
    assert micro is not None and macro is not None
    assert (micro.low + micro.high) / 2 == pytest.approx(0.725)
    assert micro.half_width == pytest.approx(1.97 * math.hypot(0.25 * 0.03, 0.75 * 0.01), rel=0.01)
    assert (macro.low + macro.high) / 2 == pytest.approx(0.55)
    assert macro.half_width == pytest.approx(1.98 * math.hypot(0.03, 0.01) / 2, rel=0.01)
    assert compute_stratified_interval([*parts, GroupPart(value=1.0, stderr=None, size=5)]) is None


def test_strata_cover_and_agree_with_the_pooled_error() -> None:
    """Tasks of very different levels: each document's spread is small within its own task."""
    draw = np.random.default_rng(1)
    covered = 0
    levels, sizes = np.array([0.02, 0.5, 0.98]), np.array([50, 20, 130])
    truth = float((levels * sizes).sum() / sizes.sum())
    for _ in range(1000):
        scores = [
            (draw.random(size) < level).astype(float) for level, size in zip(levels, sizes, strict=True)
        ]
        parts = [
            GroupPart(
                value=float(one.mean()), stderr=float(one.std(ddof=1) / np.sqrt(len(one))), size=len(one)
            )
            for one in scores
        ]
        found, whole = compute_stratified_interval(parts), pool_parts(parts)
        assert found is not None and whole.stderr is not None
        covered += found.low <= truth <= found.high
        assert whole.value == pytest.approx((found.low + found.high) / 2)
        assert found.half_width == pytest.approx(2 * whole.stderr, rel=0.15)
    assert covered / 1000 == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("weight_by_size", [True, False])
def test_easy_tasks_with_few_documents_are_covered(weight_by_size: bool) -> None:
    """Standard errors of tasks that are all right are 0, and so would be that of the group; their intervals are not."""
    draw = np.random.default_rng(2)
    levels, sizes = np.array([0.99, 0.97, 0.98, 0.95]), np.array([15, 20, 30, 25])
    weights = sizes / sizes.sum() if weight_by_size else np.full(4, 0.25)
    truth = float((levels * weights).sum())
    covered, by_errors = 0, 0
    for _ in range(1000):
        parts, plain = [], []
        for level, size in zip(levels, sizes, strict=True):
            right = int(draw.binomial(size, level))
            share, own = right / size, wilson_interval(right, size)
            error = math.sqrt(share * (1 - share) / (size - 1))
            plain.append(GroupPart(value=share, stderr=error, size=int(size)))
            parts.append(replace(plain[-1], interval=(own.low, own.high), method="wilson"))
        found, old = (
            compute_stratified_interval(some, weight_by_size=weight_by_size) for some in (parts, plain)
        )
        assert found is not None and old is not None
        covered += found.low <= truth <= found.high
        by_errors += old.low <= truth <= old.high
    assert covered / 1000 >= 0.94
    assert by_errors / 1000 < 0.94


@pytest.mark.parametrize(
    ("sizes", "levels", "least"),
    [
        ((1, 1), (0.4, 0.6), 0.93),
        ((1, 1), (0.9, 0.9), 0.93),
        ((10, 10), (0.9, 0.9), 0.93),
        ((5, 30), (0.95, 0.5), 0.93),
        ((2, 2, 2, 2, 2), (0.9, 0.8, 0.7, 0.9, 0.5), 0.93),
    ],
)
def test_few_documents_per_task_are_covered(
    sizes: tuple[int, ...], levels: tuple[float, ...], least: float
) -> None:
    draw = np.random.default_rng(3)
    covered, truth = 0, sum(levels) / len(levels)
    for _ in range(2000):
        parts = []
        for size, level in zip(sizes, levels, strict=True):
            right = int(draw.binomial(size, level))
            own = wilson_interval(right, size)
            parts.append(
                GroupPart(
                    value=right / size, stderr=None, size=size, interval=(own.low, own.high), method="wilson"
                )
            )
        found = compute_stratified_interval(parts, weight_by_size=False)
        assert found is not None and 0 <= found.low < found.high <= 1
        covered += found.low <= truth <= found.high
    assert covered / 2000 >= least


def test_degrees_of_freedom_are_satterthwaites() -> None:
    """Two tasks of ten documents with equal standard errors have 18 degrees of freedom."""
    half = 2.262157 * 0.1
    part = GroupPart(value=0.5, stderr=0.1, size=10, interval=(0.5 - half, 0.5 + half), method="adjusted t")
    found = compute_stratified_interval([part, part])
    assert found is not None
    assert found.half_width == pytest.approx(2.100922 * 0.1 / math.sqrt(2), rel=1e-4)


def build_skewed_part(value: float, below: float, above: float, method: str = "adjusted t") -> GroupPart:
    interval = (value - below, value + above)
    return GroupPart(value=value, stderr=None, size=10, interval=interval, method=method)


def test_a_group_of_one_task_has_the_interval_of_the_task() -> None:
    found = compute_stratified_interval([build_skewed_part(0.3, 0.1, 0.25)])
    assert found is not None and (found.low, found.high) == pytest.approx((0.2, 0.55))


def test_opposite_skewness_of_tasks_cancels() -> None:
    up, down = build_skewed_part(0.2, 0.1, 0.3), build_skewed_part(0.8, 0.3, 0.1)
    found = compute_stratified_interval([up, down])
    assert found is not None
    assert found.high - 0.5 == pytest.approx(0.5 - found.low)
    half = (
        0.15 / math.sqrt(2) * 2.100922 / 2.262157
    )  # the harmonic mean of both sides, with 18 degrees of freedom
    assert found.half_width == pytest.approx(half, rel=1e-4)


def test_equal_skewness_of_tasks_remains_and_decreases_with_their_number() -> None:
    part = build_skewed_part(0.2, 0.1, 0.3)
    widths = []
    for count in (2, 8):
        found = compute_stratified_interval([part] * count)
        assert found is not None
        widths.append((found.high - 0.2) / (0.2 - found.low))
    assert 3 > widths[0] > widths[1] > 1.2


@pytest.mark.parametrize(
    "part", [build_skewed_part(1.0, 0.28, 0.0, "wilson"), build_skewed_part(0.9, 0.25, 0.03)], ids=["wilson", "equal scores"]
)  # fmt: skip
def test_a_task_that_shows_no_variation_keeps_its_long_side(part: GroupPart) -> None:
    found = compute_stratified_interval([part, build_skewed_part(0.5, 0.1, 0.1)])
    assert found is not None
    assert (part.value + 0.5) / 2 - found.low > 0.12


def test_the_group_says_that_a_task_is_clustered() -> None:
    part = GroupPart(value=0.5, stderr=0.1, size=100, interval=(0.3, 0.7), method="clustered", units=10)
    plain = GroupPart(value=0.5, stderr=0.1, size=100, interval=(0.4, 0.6), method="wilson")
    found = compute_stratified_interval([part, plain])
    assert found is not None and found.method == "stratified, clustered"
