"""The table of results that lm-eval and lmms-eval print: `utils.make_table(results)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["make_table"]

_ARROWS = {True: "↑", False: "↓"}
_NOT_METRICS = ("alias", "name", "sample_len", "sample_count", "samples")


def make_table(result_dict: Mapping[str, Any], column: str = "results", sort_results: bool = False) -> str:
    """Return the results of `simple_evaluate` as a Markdown table; `column` is `results` or `groups`."""
    entries = result_dict[column]
    subtasks = result_dict.get("group_subtasks", {})
    depths = _find_depths(subtasks)
    names = sorted(entries) if sort_results else _order_names(entries, subtasks, depths)
    rows: list[list[str]] = []
    for name in names:
        rows += _build_rows(name, entries[name], result_dict, depths.get(name, 0))
    title = "Groups" if column == "groups" else "Tasks"
    return _format_markdown([title, "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"], rows)


def _build_rows(
    name: str, entry: Mapping[str, Any], results: Mapping[str, Any], depth: int
) -> list[list[str]]:
    title = f"{' ' * depth}- {entry.get('alias', name)}" if depth else str(entry.get("alias", name))
    version = str(results["versions"].get(name, "    N/A"))
    shots = str(results.get("n-shot", {}).get(name, " "))
    directions = results.get("higher_is_better", {}).get(name, {})
    rows: list[list[str]] = []
    for key, value in sorted((key, value) for key, value in entry.items() if key not in _NOT_METRICS):
        metric, _, pipeline = key.partition(",")
        if metric.endswith("_stderr"):
            continue
        error = entry.get(f"{metric}_stderr,{pipeline}")
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        spread = ["", ""] if error is None else ["±", f"{error:.4f}" if error != "N/A" else "   N/A"]
        rows.append(
            [title, version, pipeline, shots, metric, _ARROWS.get(directions.get(metric), ""), shown, *spread]
        )
        title = version = ""
    return rows


def _find_depths(subtasks: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how deep each task and group of the hierarchy is."""
    children = {child for members in subtasks.values() for child in members}
    depths: dict[str, int] = {}

    def visit(name: str, depth: int) -> None:
        depths[name] = depth
        for child in sorted(subtasks.get(name, ())):
            visit(child, depth + 1)

    for name in sorted(subtasks):
        if name not in children:
            visit(name, 0)
    return depths


def _order_names(
    entries: Mapping[str, Any], subtasks: Mapping[str, Sequence[str]], depths: Mapping[str, int]
) -> list[str]:
    """Return groups with their members below them, then all other tasks."""
    below = [name for name in depths if name in entries]
    return [*below, *sorted(name for name in entries if name not in depths)]


def _format_markdown(headers: list[str], rows: list[list[str]]) -> str:
    columns = [[header, *(row[index] for row in rows)] for index, header in enumerate(headers)]
    widths = [max(3, *map(len, column)) for column in columns]
    right = [_is_numeric(column[1:]) for column in columns]
    lines = ["|".join(header.center(width) for header, width in zip(headers, widths, strict=True))]
    lines.append(
        "|".join(
            "-" * (width - 1) + ":" if number else "-" * width
            for width, number in zip(widths, right, strict=True)
        )
    )
    for row in rows:
        cells = zip(row, widths, right, strict=True)
        lines.append(
            "|".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells)
        )
    return "".join(f"|{line}|\n" for line in lines)


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether every cell that is not empty is a number."""
    filled = [cell for cell in cells if cell.strip()]
    try:
        return bool([float(cell) for cell in filled])
    except ValueError:
        return False
