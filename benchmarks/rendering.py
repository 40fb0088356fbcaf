"""Render RESULTS.md from results.json: a summary of all claims, then one section per benchmark with its notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from measurements import Measurement
from plots import draw_limits, draw_ratios

HEADER = """# Benchmark results

`make bench` (`benchmarks/run.py`) generates this page from [results.json](results.json); only the notes are written by hand.
Compare the ratios, not the seconds: both sides of a ratio are measured within minutes on the same machine, while absolute times
depend on the machine and its load. A ratio says how many times better Assay is than the best peer: less time, or more work in the
same time. The limit is what the hardware, the server or the libraries underneath allow, where it can be known or measured. The table
lists every goal, met or not.
"""


class Row(Protocol):
    """The fields of a benchmark that rendering needs."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def script(self) -> Path: ...
    @property
    def plot(self) -> str: ...


def render(known: Mapping[str, Any], table: Sequence[Row], folder: Path, *, notes: Path) -> None:
    """Write RESULTS.md and plots/ to a folder."""
    (folder / "plots").mkdir(exist_ok=True)
    entries = {row.name: known["benchmarks"].get(row.name) for row in table}
    measured = {
        name: [Measurement.from_row(one) for one in entry["measurements"]]
        for name, entry in entries.items()
        if entry
    }
    parts = [HEADER, *format_environment([entry for entry in entries.values() if entry])]
    parts += format_summary(table, entries, measured)
    if ratios := draw_ratios(list_ratios(table, measured)):
        (folder / "plots" / "ratios.svg").write_text(ratios, "utf-8")
        parts.append("![Ratio of each claim; the vertical mark is the goal](plots/ratios.svg)\n")
    for row in table:
        parts += format_section(
            row, entries[row.name], measured.get(row.name, []), folder, notes / f"{row.name}.md"
        )
    (folder / "RESULTS.md").write_text("\n".join(parts).rstrip() + "\n", "utf-8")


def format_environment(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """List each machine and package version once; benchmarks may have run on different machines."""
    machines: dict[str, bool] = {}
    versions: dict[str, dict[str, str]] = {}
    for entry in entries:
        one = entry["machine"]
        machines[
            f"{one['cores']} cores ({one['processor']}), {one['memory_gb']} GB, {one['system']}, Python {one['python']}"
        ] = True
        for place, packages in entry["versions"].items():
            versions.setdefault(place, {}).update(packages)
    lines = [f"- Machine: {text}" for text in machines]
    for place, packages in versions.items():
        name = {"assay": "Assay's environment", "packages": "Environment of other packages"}.get(
            place, f"{place}'s environment"
        )
        lines.append(f"- {name}: {', '.join(f'{key} {value}' for key, value in packages.items())}")
    return ["\n".join(lines) + "\n"]


def format_summary(
    table: Sequence[Row], entries: Mapping[str, Any], measured: Mapping[str, Sequence[Measurement]]
) -> list[str]:
    """Format the table of claims: every measurement that has a peer, a limit or a goal, with the best of several peers."""
    lines = [
        "| | | Assay | best peer | ratio | limit | share of limit | goal | met |",
        "|---|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for row in table:
        for one in keep_best_peers(measured.get(row.name, [])):
            if one.peer is not None or one.goal is not None or one.limit is not None:
                link = f"[{row.name}](#{make_anchor(row.title)})"
                ours, peer = (
                    f"{format_number(one.ours)} {one.unit}",
                    f"{format_number(one.peer)} ({one.against})" if one.peer is not None else "",
                )
                lines.append(
                    f"| {link} | {one.what} | {ours} | {peer} | {format_ratio(one.ratio)} | {format_limit(one)} | "
                    f"{format_share(one)} | {format_goal(one)} | {format_met(one)} |"
                )
    with_goal = [one.met for rows in measured.values() for one in rows if one.goal is not None]
    parts = ["## Summary\n", f"{sum(map(bool, with_goal))} of {len(with_goal)} goals are met.\n"]
    gaps = [
        f"- [{row.name}](#{make_anchor(row.title)}) {gap}"
        for row in table
        if (gap := describe_gap(entries[row.name]))
    ]
    if gaps:
        parts.append("Incomplete benchmarks:\n\n" + "\n".join(gaps) + "\n")
    return [*parts, "\n".join(lines) + "\n"]


def keep_best_peers(measured: Sequence[Measurement]) -> list[Measurement]:
    """Drop measurements without a goal that another peer of the same measurement beats."""
    best: dict[str, float] = {}
    for one in measured:
        if one.ratio is not None:
            best[one.what] = min(best.get(one.what, one.ratio), one.ratio)
    return [
        one for one in measured if one.goal is not None or one.ratio is None or one.ratio <= best[one.what]
    ]


def describe_gap(entry: Mapping[str, Any] | None) -> str:
    """Return why a benchmark has no or incomplete results, or an empty string."""
    if entry is None:
        return "has not been run."
    if entry["status"] == "not run":
        return f"was not run: {entry['why']}."
    return f"failed: {entry['why']}." if entry["status"] == "failed" else ""


def format_section(
    row: Row, entry: Mapping[str, Any] | None, measured: Sequence[Measurement], folder: Path, notes: Path
) -> list[str]:
    """Format one benchmark: its table, plot, provenance and notes."""
    parts = [f"## {row.title}\n"]
    if gap := describe_gap(entry):
        parts.append(f"**{row.name} {gap}**\n")
    if measured:
        parts.append(format_details(measured))
        draw = {"ratios": draw_ratios, "limits": draw_limits}.get(row.plot)
        if draw and (svg := draw([(format_label(one), one) for one in measured])):
            (folder / "plots" / f"{row.name}.svg").write_text(svg, "utf-8")
            parts.append(f"![{row.title}](plots/{row.name}.svg)\n")
    if entry is not None:
        parts.append(format_provenance(row, entry))
    if notes.exists():
        parts.append(notes.read_text("utf-8"))
    return parts


def format_details(measured: Sequence[Measurement]) -> str:
    """Format all measurements of a benchmark as a table without empty columns."""
    extra = list(dict.fromkeys(key for one in measured for key in one.details))
    columns: list[tuple[str, str, list[str]]] = [
        ("", "---", [one.what for one in measured]),
        ("Assay", "--:", [format_number(one.ours) for one in measured]),
        ("peer", "--:", ["" if one.peer is None else format_number(one.peer) for one in measured]),
        ("peer name", "---", [one.against for one in measured]),
        ("unit", "---", [one.unit for one in measured]),
        ("ratio", "--:", [format_ratio(one.ratio) for one in measured]),
        ("limit", "--:", [format_limit(one) for one in measured]),
        ("share of limit", "--:", [format_share(one) for one in measured]),
        ("goal", "---", [format_goal(one) for one in measured]),
        ("met", "---", [format_met(one) for one in measured]),
        *((key, "--:", [format_cell(one.details.get(key, "")) for one in measured]) for key in extra),
    ]
    kept = [column for index, column in enumerate(columns) if index == 0 or any(column[2])]
    lines = [
        [column[0] for column in kept],
        [column[1] for column in kept],
        *zip(*(column[2] for column in kept), strict=True),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def format_provenance(row: Row, entry: Mapping[str, Any]) -> str:
    """Format when and how a benchmark ran, and how to repeat it."""
    others = "" if entry["others"] is None else f", {entry['others']:.0%} of CPU time used by other processes"
    words = " ".join(["python", f"benchmarks/{row.script.name}", *entry["arguments"]])
    return (
        f"*{entry['date']}, commit {entry['commit']}, {entry['seconds']:.0f} s; at start: load {entry['load']}{others}.* "
        f"To repeat: `scripts/bench --only {row.name}`, which runs `{words}`.\n"
    )


def list_ratios(
    table: Sequence[Row], measured: Mapping[str, Sequence[Measurement]]
) -> list[tuple[str, Measurement]]:
    """Return every measurement that has a ratio, labelled with its benchmark."""
    return [
        (f"{row.name}: {format_label(one)}", one)
        for row in table
        for one in measured.get(row.name, [])
        if one.ratio
    ]


def format_label(one: Measurement) -> str:
    """Return the label of a measurement, with its peer."""
    return f"{one.what} / {one.against}" if one.against else one.what


def format_goal(one: Measurement) -> str:
    if one.goal is None:
        return ""
    sign = "x" if one.goal.of == "ratio" else ""
    bounds = [("at least", one.goal.least), ("at most", one.goal.most)]
    return " and ".join(f"{word} {format_number(value)}{sign}" for word, value in bounds if value is not None)


def format_limit(one: Measurement) -> str:
    if one.limit is None:
        return ""
    return f"{format_number(one.limit)} ({one.limited_by})" if one.limited_by else format_number(one.limit)


def format_share(one: Measurement) -> str:
    return "" if one.share_of_limit is None else f"{one.share_of_limit:.0%}"


def format_met(one: Measurement) -> str:
    return {True: "yes", False: "**no**", None: "" if one.goal is None else "unknown"}[one.met]


def format_number(value: float) -> str:
    """Format a number with about three significant digits.

    >>> [number(value) for value in (0, 10_910.3, 28.71, 1.4, 0.28, 0.012, 5)]
    ['0', '10,910', '28.7', '1.40', '0.28', '0.012', '5']
    """
    if float(value).is_integer():
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"


def format_ratio(ratio: float | None) -> str:
    return (
        ""
        if ratio is None
        else f"{ratio:,.0f}x"
        if ratio >= 100
        else f"{ratio:.1f}x"
        if ratio >= 2
        else f"{ratio:.2f}x"
    )


def format_cell(value: str | float) -> str:
    return value if isinstance(value, str) else format_number(value)


def make_anchor(title: str) -> str:
    """Return the link anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
