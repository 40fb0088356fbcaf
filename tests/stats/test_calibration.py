from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.calibration import compute_cohen_kappa, compute_flip_rate, estimate_calibrated_mean


def test_kappa_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(1)
    first = draw.integers(0, 3, size=80).tolist()
    second = [one if draw.random() < 0.6 else int(draw.integers(0, 3)) for one in first]
    assert compute_cohen_kappa(first, second) == pytest.approx(metrics.cohen_kappa_score(first, second))


def test_kappa_of_one_constant_answer_says_nothing() -> None:
    assert compute_cohen_kappa([1, 1], [1, 1]) is None


def labels_and_judge(
    draw: np.random.Generator, count: int, right: float, bias: float
) -> tuple[np.ndarray, np.ndarray]:
    truth = (draw.random(count) < 0.6).astype(float)
    wrong = np.where(draw.random(count) < bias, 1.0, 1 - truth)
    return truth, np.where(draw.random(count) < right, truth, wrong)


@pytest.mark.parametrize(("right", "bias"), [(0.95, 0.5), (0.8, 1.0), (0.5, 0.5)])
def test_the_interval_covers_however_bad_the_judge_is(right: float, bias: float) -> None:
    draw = np.random.default_rng(2)
    covered, judge_alone, narrower = 0, 0, 0
    for _ in range(1000):
        truth, judged = labels_and_judge(draw, 1100, right, bias)
        found = estimate_calibrated_mean(truth[:100], judged[:100], judged[100:])
        covered += found.interval.low <= 0.6 <= found.interval.high
        narrower += found.stderr < found.labels_stderr
        judge_alone += abs(judged.mean() - 0.6) < 1.96 * judged.std() / np.sqrt(1100)
    assert covered / 1000 >= 0.93
    if bias == 1.0:
        assert judge_alone < 100
    if right > 0.7:
        assert narrower > 950


def test_a_perfect_judge_is_worth_no_more_than_its_labels_show() -> None:
    draw = np.random.default_rng(3)
    truth, _ = labels_and_judge(draw, 5000, 1.0, 0.0)
    few, many = (estimate_calibrated_mean(truth[:count], truth[:count], truth[count:]) for count in (20, 500))
    assert 20 < few.worth < 100  # two disagreements may have been missed
    assert many.weight == pytest.approx(0.9, abs=0.05)
    assert many.worth > 2500


@pytest.mark.parametrize(("labelled", "error"), [(5, 0.1), (10, 0.1), (20, 0.05), (50, 0.02)])
def test_labels_that_all_agree_with_the_judge_are_not_certain(labelled: int, error: float) -> None:
    """The judge errs rarely and in one direction, so that most sets of labels show no error."""
    draw = np.random.default_rng(5)
    covered = 0
    for _ in range(1000):
        truth = (draw.random(labelled + 1000) < 0.6).astype(float)
        judged = np.where(draw.random(len(truth)) < error, 0.0, truth)
        found = estimate_calibrated_mean(truth[:labelled], judged[:labelled], judged[labelled:])
        covered += found.interval.low <= 0.6 <= found.interval.high
        assert 0 <= found.interval.low < found.interval.high <= 1
    assert covered / 1000 >= (0.9 if labelled == 5 else 0.93)


def test_the_labels_alone_count_if_the_judge_does_not_help() -> None:
    draw = np.random.default_rng(6)
    truth = (draw.random(320) < 0.5).astype(float)
    found = estimate_calibrated_mean(truth[:20], 1 - truth[:20], 1 - truth[20:])
    assert (found.weight, found.worth, found.interval.method) == (0.0, 20.0, "labels alone, wilson")


def test_equal_grades_are_not_certain() -> None:
    found = estimate_calibrated_mean([3.0] * 6, [3.0] * 6, [2.0, 3.0, 4.0, 5.0] * 20)
    assert found.interval.low < 3 < found.interval.high


def test_with_a_label_for_every_document_the_judge_adds_nothing() -> None:
    labels = [1.0, 0.0, 1.0, 1.0]
    found = estimate_calibrated_mean(labels, [1.0, 1.0, 1.0, 0.0], [])
    assert (found.value, found.weight, found.judged) == (0.75, 0.0, 4)
    assert found.stderr == pytest.approx(found.labels_stderr) == pytest.approx(0.25)


def test_labels_that_are_all_the_same_are_not_certain() -> None:
    found = estimate_calibrated_mean([1.0] * 5, [1.0] * 5, [1.0] * 50)
    assert 0.4 < found.interval.low < 0.6


@pytest.mark.parametrize("labelled", [8, 15])
def test_few_labels_are_still_covered(labelled: int) -> None:
    draw = np.random.default_rng(4)
    covered = 0
    for _ in range(2000):
        truth = draw.normal(0.6, 0.2, size=labelled + 300)
        judged = truth + draw.normal(0.1, 0.2, size=len(truth))
        found = estimate_calibrated_mean(truth[:labelled], judged[:labelled], judged[labelled:])
        covered += found.interval.low <= 0.6 <= found.interval.high
    assert covered / 2000 >= 0.93


def test_a_judge_that_says_one_thing_is_not_trusted() -> None:
    found = estimate_calibrated_mean([1.0, 0.0, 1.0], [1.0] * 3, [1.0] * 50)
    assert found.weight == 0.0
    assert found.value == pytest.approx(2 / 3)


def test_minds_changed_by_places_are_counted() -> None:
    assert compute_flip_rate(["A", "B", "tie"], ["A", "A", "tie"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: compute_flip_rate(["A"], []),
        lambda: compute_cohen_kappa([], []),
        lambda: estimate_calibrated_mean([1.0], [1.0], [1.0, 0.0]),
        lambda: estimate_calibrated_mean([1.0, 0.0], [1.0], [1.0, 0.0]),
    ],
)
def test_too_little_is_an_error(wrong: object) -> None:
    with pytest.raises(AssayError):
        wrong()  # type: ignore[operator]
