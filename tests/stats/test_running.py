from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.running import Running
from assay.stats.sums import mean, mean_error


def test_nothing_is_known_of_nothing() -> None:
    assert (Running().mean, Running().stderr) == (None, None)


def test_one_value_has_no_error() -> None:
    progress = Running()
    progress.add([0.25])
    assert (progress.mean, progress.stderr, progress.count) == (0.25, None, 1)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=5), min_size=2))
def test_portions_add_up_to_the_whole(portions: list[list[float]]) -> None:
    progress = Running()
    for portion in portions:
        progress.add(portion)
    values = [value for portion in portions for value in portion]
    assert progress.count == len(values)
    if len(values) > 1:
        assert progress.mean == pytest.approx(mean(values), abs=1e-9)
        assert progress.stderr == pytest.approx(mean_error(values), abs=1e-6)
