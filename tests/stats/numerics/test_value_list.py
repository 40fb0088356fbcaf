from __future__ import annotations

from array import array
from typing import Any

import pytest

from assay.stats.aggregations import AGGREGATIONS, accepts_any_sequence, aggregate
from assay.stats.intervals.standard_errors import compute_standard_error
from assay.stats.numerics.value_list import ValueList


def make_values(items: list[Any]) -> ValueList:
    values = ValueList()
    for item in items:
        values.append(item)
    return values


@pytest.mark.parametrize("items", [[], [0.5, -0.0], [1.0, 2], [1, 2.0], [(1, 2), 0.5], [True, 1.0]], ids=repr)
def test_values_are_given_back_as_they_were(items: list[Any]) -> None:
    values = make_values(items)
    assert values.as_list() == items
    assert [type(value) for value in values.as_list()] == [type(item) for item in items]
    assert len(values) == len(items)


def test_floats_take_eight_bytes_each() -> None:
    assert make_values([1.0, 0.0]).items == array("d", [1.0, 0.0])


@pytest.mark.parametrize(
    "name", ["mean", "sum", "min", "max", "std", "median", "perplexity", "nanmean", "bypass"]
)
def test_an_array_of_floats_sums_up_as_a_list_of_them(name: str) -> None:
    items = [0.1, 0.7, -0.0, 0.3, 1 / 3]
    values = make_values(items).items
    assert aggregate(name, values) == aggregate(name, items)
    assert type(aggregate(name, values)) is type(aggregate(name, items))
    assert compute_standard_error(name, values, metric="m", iterations=100) == compute_standard_error(
        name, items, metric="m", iterations=100
    )


def test_only_our_own_aggregations_are_handed_arrays() -> None:
    assert all(accepts_any_sequence(name) for name in ("mean", "min", "f1", "bleu"))
    assert not accepts_any_sequence(lambda values: values)
    assert not accepts_any_sequence(sum)
    assert accepts_any_sequence(AGGREGATIONS.get("median"))
