"""Tests of sums that come out the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from assay.stats.sums import left_sum, row_sums


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 33])
@pytest.mark.parametrize("columns", [1, 2, 8, 129, 1000])
def test_row_sums_are_left_sums_to_the_last_bit(rows: int, columns: int) -> None:
    draw = np.random.default_rng(rows * columns)
    table = draw.standard_normal((rows, columns)) * 10.0 ** draw.integers(-8, 8, (rows, columns))
    assert row_sums(table).tolist() == [left_sum(row) for row in table.tolist()]
