"""Numbers, durations, sizes and prices as every table, page and report writes them."""

from __future__ import annotations

from math import floor, log10
from typing import Any

__all__ = [
    "DIRECTION_ARROWS",
    "format_age",
    "format_bytes",
    "format_count",
    "format_dollars",
    "format_duration",
    "format_float",
    "format_number",
]

DIRECTION_ARROWS = {True: "↑", False: "↓", None: ""}
"""`higher_is_better` -> the arrow beside a metric."""


def format_number(value: Any) -> str:
    """Format a metric's value: floats with four decimals, `no value` for None, `…` for a mapping or a list."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "no value" if value is None else "…" if isinstance(value, (dict, list)) else str(value)
    return format_float(value) if isinstance(value, float) else str(value)


def format_float(value: float) -> str:
    """Format with four decimals, or in scientific notation from ten million on.

    >>> format_float(0.5), format_float(44133170283059224.0)
    ('0.5000', '4.4133e+16')
    """
    return f"{value:.4f}" if abs(value) < 1e7 else f"{value:.4e}"


def format_count(number: float) -> str:
    """Format a large count with three significant digits.

    >>> format_count(12), format_count(1234), format_count(2_500_000)
    ('12', '1.23k', '2.5M')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def format_dollars(amount: float) -> str:
    """Format a price in cents; below one dollar with two significant digits.

    >>> format_dollars(12.345), format_dollars(0.00123), format_dollars(0.0000112), format_dollars(0)
    ('$12.35', '$0.0012', '$0.000011', '$0.00')
    """
    if amount >= 1 or amount == 0:
        return f"${amount:.2f}"
    return f"${amount:.{1 - floor(log10(amount))}f}"


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> format_duration(0.4), format_duration(75), format_duration(7260), format_duration(266400)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '3 d 2 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {part}"
    return f"{whole} s"


def format_age(seconds: float) -> str:
    """Format how long ago something happened.

    >>> format_age(3), format_age(130), format_age(7300), format_age(200000)
    ('just now', '2 min ago', '2 h ago', '2 d ago')
    """
    if seconds < 60:
        return "just now"
    size, unit = next(
        (size, unit) for size, unit in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= size
    )
    return f"{int(seconds // size)} {unit} ago"


def format_bytes(size: float) -> str:
    """Format a number of bytes.

    >>> format_bytes(512), format_bytes(2048), format_bytes(5 * 1024**3)
    ('512 B', '2.0 kB', '5.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
