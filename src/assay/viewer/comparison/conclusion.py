"""The conclusion of a comparison in one sentence, for the first line of a command or a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from assay.core.terminal_text import escape_control_characters
from assay.viewer.comparison.comparison_table import format_p_value
from assay.viewer.comparison.groups import order_rows
from assay.viewer.comparison.records import Comparison, ComparisonRow

__all__ = ["state_conclusion"]

_MAX_NAMED = 4
"""Tasks named in one part of the sentence; the others are counted."""


def state_conclusion(comparison: Comparison, *, first: str = "", second: str = "") -> str:
    """Return who is better, on which tasks, by how much and how sure that is.

    `first` and `second` name the runs; by default their models, or the runs if the models are the same.

    `nova-large is better than nova-small on gsm8k by 22.0 points (9.0 to 35.0), p = 0.0045; no difference seen on arc_easy (±4.0)`
    """
    first = first or _choose_names(comparison)[0]
    second = second or _choose_names(comparison)[1]
    stated = _select_rows(comparison)
    several = {row.task for row in stated if sum(one.task == row.task for one in stated) > 1}

    def name(row: ComparisonRow) -> str:
        return f"{row.task} ({row.metric})" if row.task in several else row.task

    better = [row for row in stated if row.differs and row.better]
    worse = [row for row in stated if row.differs and row.better is False]
    changed = [row for row in stated if row.differs and row.better is None]
    blocked = [row for row in stated if row.blocked]
    rest = [row for row in stated if not row.differs and not row.blocked]
    identical = [row for row in rest if row.stderr == 0 and row.difference == 0]
    unclear = [row for row in rest if row not in identical]
    parts = []
    subject = f"{second} is "
    for word, rows in (("better", better), ("worse", worse), ("different", changed)):
        if rows:
            other = (f" than {first}" if word != "different" else f" from {first}") if subject else ""
            parts.append(
                f"{subject}{word}{other} on {_join(rows, [f'{name(row)} {_describe(row)}' for row in rows])}"
            )
            subject = ""
    if unclear:
        between = f" between {second} and {first}" if not parts else ""
        named = _join(unclear, [f"{name(row)}{_format_margin(row)}" for row in unclear])
        parts.append(f"no difference{between} seen on {named}")
    if identical:
        between = f" of {second} and {first}" if not parts else ""
        parts.append(f"identical scores{between} on {_join(identical, [name(row) for row in identical])}")
    if blocked:
        kinds = ", ".join(dict.fromkeys(kind for row in blocked for kind in row.blocked))
        between = f"{second} and {first} are " if not parts else ""
        named = _join(blocked, [name(row) for row in blocked])
        parts.append(f"{between}not comparable on {named} (different {kinds})")
    return escape_control_characters("; ".join(parts))


def _select_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return groups before tasks; of the tasks inside a group, those that differ from it in their verdict."""
    found = order_rows(comparison)
    groups = {group.task: group for group in comparison.groups}
    outer = [row for around, row in found if not around]
    outer.sort(key=lambda row: not row.members)
    return [
        *outer,
        *(row for around, row in found if around and row.differs and row.better != groups[around[0]].better),
    ]


def _choose_names(comparison: Comparison) -> tuple[str, str]:
    if comparison.first_model and comparison.first_model != comparison.second_model:
        return comparison.first_model, comparison.second_model
    return Path(comparison.first).name, Path(comparison.second).name


def _describe(row: ComparisonRow) -> str:
    """Return the size of a difference: `by 22.0 points (9.0 to 35.0), p = 0.0045`."""
    sign = 1 if row.difference >= 0 else -1
    low, high = sorted((sign * row.low, sign * row.high))
    unit = " points" if row.share else f" {row.metric}"
    size = f"{_format_size(abs(row.difference), row)}{unit}"
    span = f" ({_format_size(low, row)} to {_format_size(high, row)})" if math.isfinite(low + high) else ""
    p_value = format_p_value(row.adjusted_p)
    p_value = f"p {p_value}" if p_value.startswith("<") else f"p = {p_value}"
    return f"by {size}{span}, {p_value}"


def _format_margin(row: ComparisonRow) -> str:
    """Return the largest difference inside the interval: larger ones are unlikely."""
    margin = max(abs(row.low), abs(row.high))
    return f" (±{_format_size(margin, row)})" if math.isfinite(margin) else ""


def _format_size(value: float, row: ComparisonRow) -> str:
    return f"{100 * value:.1f}" if row.share else f"{value:.3g}"


def _join(rows: Sequence[ComparisonRow], texts: Sequence[str]) -> str:
    named = list(dict.fromkeys(texts))
    if len(named) <= _MAX_NAMED:
        return ", ".join(named)
    return f"{', '.join(named[:_MAX_NAMED])} and {len(named) - _MAX_NAMED} more"
