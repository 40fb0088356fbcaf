"""The table of results that lm-eval and lmms-eval print: `utils.make_table(results)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
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
    rows: list[list[Any]] = []
    for name in names:
        rows += _build_rows(name, entries[name], result_dict, depths.get(name, 0))
    title = "Groups" if column == "groups" else "Tasks"
    return _format_markdown([title, "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"], rows)


def _build_rows(
    name: str, entry: Mapping[str, Any], results: Mapping[str, Any], depth: int
) -> list[list[Any]]:
    title = f"{' ' * depth}- {entry.get('alias', name)}" if depth else str(entry.get("alias", name))
    version = results["versions"].get(name, "    N/A")
    shots = str(results.get("n-shot", {}).get(name, " "))
    directions = results.get("higher_is_better", {}).get(name, {})
    rows: list[list[Any]] = []
    for key, value in sorted((key, value) for key, value in entry.items() if key not in _NOT_METRICS):
        metric, _, pipeline = key.partition(",")
        if metric.endswith("_stderr"):
            continue
        error = entry.get(f"{metric}_stderr,{pipeline}")
        shown = f"{value:.4f}" if isinstance(value, float) else value
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


def _format_markdown(headers: list[str], rows: list[list[Any]]) -> str:
    columns = [_format_column(header, [row[index] for row in rows]) for index, header in enumerate(headers)]
    return "".join(f"|{'|'.join(cells)}|\n" for cells in zip(*columns, strict=True))


def _format_column(header: str, values: Sequence[Any]) -> list[str]:
    """Return the cells of a column, all of one width: numbers to the right, texts to the left."""
    numbers = _parse_numbers(values)
    if numbers is None:
        values = _parse_texts(values)
        texts = [_format_value(value) for value in values]
        right = [_is_number(value) for value in values]
    else:
        texts = _format_numbers(numbers)
        right = [True] * len(values)
    width = max(3, len(header), *map(len, texts))
    rule = "-" * width if numbers is None else "-" * (width - 1) + ":"
    cells = [
        f"{text:>{width}}" if flag else f"{text:<{width}}" for text, flag in zip(texts, right, strict=True)
    ]
    return [f"{header:^{width}}", rule, *cells]


def _parse_texts(values: Sequence[Any]) -> Sequence[Any]:
    """Replace texts that are numbers by numbers: those before the second other text, as pytablewriter does.

    Nothing is replaced if the first cell is another text.
    """
    numbers: list[Decimal | None] = []
    others = 0
    for index, value in enumerate(values):
        found = _parse_numbers([value])
        others += found is None and bool(str(value).strip()) and (2 if index == 0 else 1)
        numbers.append(found[0] if found and others < 2 else None)
    places = max((_count_decimals(one) for one in numbers if one is not None and one.is_finite()), default=0)
    return [
        value if one is None else _round_number(one, places)
        for value, one in zip(values, numbers, strict=True)
    ]


def _round_number(number: Decimal, places: int) -> Decimal:
    """Return an integer without decimals, another number with those of its column."""
    is_fraction = number.is_finite() and number != number.to_integral_value()
    return Decimal(f"{number:.{places}f}") if is_fraction else number.normalize()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _format_value(value: Any) -> str:
    """Return a value of a column with texts: a number without trailing zeros, unless it has those of its column."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return f"{Decimal(str(value)).normalize():f}" if _is_number(value) else str(value)


def _parse_numbers(values: Sequence[Any]) -> list[Decimal | None] | None:
    """Return the numbers of a column, None for empty cells; return None if a cell is not a number or all are empty."""
    cells = [str(value).strip() for value in values]
    try:
        parsed = [Decimal(cell) if cell else None for cell in cells]
    except InvalidOperation:
        return None
    return parsed if any(number is not None for number in parsed) else None


def _format_numbers(numbers: Sequence[Decimal | None]) -> list[str]:
    """Write every number of a column with the decimals that the longest one needs, as pytablewriter does."""
    decimals = [_count_decimals(number) for number in numbers if number is not None and number.is_finite()]
    places = max(decimals, default=0)
    return [_format_number(number, places) for number in numbers]


def _count_decimals(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _format_number(number: Decimal | None, places: int) -> str:
    if number is None:
        return ""
    if number.is_nan():
        return "NaN"
    return f"{number:.{places}f}" if number.is_finite() else str(number)
