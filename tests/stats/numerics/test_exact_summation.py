"""Tests of sums that come out the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from assay.stats.numerics.exact_summation import sum_left_to_right, sum_rows


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 33])
@pytest.mark.parametrize("columns", [1, 2, 8, 129, 1000])
def test_row_sums_are_left_sums_to_the_last_bit(rows: int, columns: int) -> None:
    draw = np.random.default_rng(rows * columns)
    table = draw.standard_normal((rows, columns)) * 10.0 ** draw.integers(-8, 8, (rows, columns))
    assert sum_rows(table).tolist() == [sum_left_to_right(row) for row in table.tolist()]
