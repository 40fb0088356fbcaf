"""Formatting of numbers, durations, sizes and prices."""

from __future__ import annotations

from typing import Any

import pytest

from assay.viewer.number_format import (
    format_age,
    format_bytes,
    format_dollars,
    format_duration,
    format_number,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, "0.5000"),
        (1, "1"),
        (None, "no value"),
        ({"a": 1}, "…"),
        ([1], "…"),
        (True, "True"),
        ("n/a", "n/a"),
        (12345.678, "12345.6780"),
    ],
)
def test_values_are_formatted(value: Any, shown: str) -> None:
    assert format_number(value) == shown


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (format_duration(59.94), "59.9 s"),
        (format_duration(3599.6), "1 h 0 min"),
        (format_age(59.9), "just now"),
        (format_age(86400), "1 d ago"),
        (format_bytes(1023), "1023 B"),
        (format_bytes(1024**5), "1024.0 TB"),
        (format_dollars(0.5), "$0.50"),
        (format_dollars(1e-7), "$0.00000010"),
    ],
)
def test_units_change_at_their_limits(formatted: str, expected: str) -> None:
    assert formatted == expected
