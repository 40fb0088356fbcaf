"""RESULTS.md out of results.json: a summary of every claim, then a section for each benchmark with its notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from measurements import Measurement
from plots import limits_plot, ratios_plot

HEAD = """# Measured

Written by `make bench` (`benchmarks/run.py`) from [results.json](results.json); only the notes are written by hand. Compare the
ratios: both sides of one are measured in the same minutes on the same machine, the seconds depend on the machine and on what else it
does. A ratio is how many times better Assay is: less time, or more in the same time. Goals are what we set out to reach, met or not.
"""


class Row(Protocol):
    """What is needed of a benchmark."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def script(self) -> Path: ...
    @property
    def plot(self) -> str: ...


def render(known: Mapping[str, Any], table: Sequence[Row], folder: Path, *, notes: Path) -> None:
    """Write RESULTS.md and plots/ into a folder."""
    (folder / "plots").mkdir(exist_ok=True)
    entries = {row.name: known["benchmarks"].get(row.name) for row in table}
    measured = {
        name: [Measurement.read(one) for one in entry["measurements"]]
        for name, entry in entries.items()
        if entry
    }
    parts = [HEAD, *circumstances([entry for entry in entries.values() if entry])]
    parts += summary(table, entries, measured)
    if ratios := ratios_plot(chosen_ratios(table, measured)):
        (folder / "plots" / "ratios.svg").write_text(ratios, "utf-8")
        parts.append("![How many times better, by claim; the stroke is the goal](plots/ratios.svg)\n")
    for row in table:
        parts += section(row, entries[row.name], measured.get(row.name, []), folder, notes / f"{row.name}.md")
    (folder / "RESULTS.md").write_text("\n".join(parts).rstrip() + "\n", "utf-8")


def circumstances(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Machines and versions, each once; more than one only if the parts were measured apart."""
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
        name = {"assay": "Assay's environment", "packages": "Packages beside it"}.get(
            place, f"{place}'s environment"
        )
        lines.append(f"- {name}: {', '.join(f'{key} {value}' for key, value in packages.items())}")
    return ["\n".join(lines) + "\n"]


def summary(
    table: Sequence[Row], entries: Mapping[str, Any], measured: Mapping[str, Sequence[Measurement]]
) -> list[str]:
    """Every claim: all that has a peer or a goal."""
    lines = ["| | | Assay | peer | ratio | goal | met |", "|---|---|--:|--:|--:|---|---|"]
    for row in table:
        for one in measured.get(row.name, []):
            if one.peer is not None or one.goal is not None:
                link = f"[{row.name}](#{anchor(row.title)})"
                ours, peer = (
                    f"{number(one.ours)} {one.unit}",
                    f"{number(one.peer)} ({one.against})" if one.peer is not None else "",
                )
                lines.append(
                    f"| {link} | {one.what} | {ours} | {peer} | {times(one.ratio)} | {goal_text(one)} | {met_text(one)} |"
                )
    with_goal = [one.met for rows in measured.values() for one in rows if one.goal is not None]
    parts = ["## Summary\n", f"{sum(map(bool, with_goal))} of {len(with_goal)} goals are met.\n"]
    gaps = [
        f"- [{row.name}](#{anchor(row.title)}) {gap}" for row in table if (gap := gap_of(entries[row.name]))
    ]
    if gaps:
        parts.append("Without numbers, or not with all of them:\n\n" + "\n".join(gaps) + "\n")
    return [*parts, "\n".join(lines) + "\n"]


def gap_of(entry: Mapping[str, Any] | None) -> str:
    """What is missing of a benchmark, if something is."""
    if entry is None:
        return "has not been run."
    if entry["status"] == "not run":
        return f"was not run: {entry['why']}."
    return f"failed: {entry['why']}." if entry["status"] == "failed" else ""


def section(
    row: Row, entry: Mapping[str, Any] | None, measured: Sequence[Measurement], folder: Path, notes: Path
) -> list[str]:
    """One benchmark: what was found, how, and what to think of it."""
    parts = [f"## {row.title}\n"]
    if gap := gap_of(entry):
        parts.append(f"**{row.name} {gap}**\n")
    if measured:
        parts.append(detailed(measured))
        draw = {"ratios": ratios_plot, "limits": limits_plot}.get(row.plot)
        if draw and (picture := draw([(named(one), one) for one in measured])):
            (folder / "plots" / f"{row.name}.svg").write_text(picture, "utf-8")
            parts.append(f"![{row.title}](plots/{row.name}.svg)\n")
    if entry is not None:
        parts.append(how(row, entry))
    if notes.exists():
        parts.append(notes.read_text("utf-8"))
    return parts


def detailed(measured: Sequence[Measurement]) -> str:
    """All numbers of a benchmark; columns nobody fills are left out."""
    extra = list(dict.fromkeys(key for one in measured for key in one.details))
    columns: list[tuple[str, str, list[str]]] = [
        ("", "---", [one.what for one in measured]),
        ("Assay", "--:", [number(one.ours) for one in measured]),
        ("peer", "--:", ["" if one.peer is None else number(one.peer) for one in measured]),
        ("of", "---", [one.against for one in measured]),
        ("unit", "---", [one.unit for one in measured]),
        ("ratio", "--:", [times(one.ratio) for one in measured]),
        ("goal", "---", [goal_text(one) for one in measured]),
        ("met", "---", [met_text(one) for one in measured]),
        *((key, "--:", [cell(one.details.get(key, "")) for one in measured]) for key in extra),
    ]
    kept = [column for at, column in enumerate(columns) if at == 0 or any(column[2])]
    lines = [
        [column[0] for column in kept],
        [column[1] for column in kept],
        *zip(*(column[2] for column in kept), strict=True),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def how(row: Row, entry: Mapping[str, Any]) -> str:
    """When and how it was measured, and how to do it again."""
    others = (
        "" if entry["others"] is None else f", {entry['others']:.0%} of the processors busy with other work"
    )
    words = " ".join(["python", f"benchmarks/{row.script.name}", *entry["arguments"]])
    return (
        f"*{entry['date']}, commit {entry['commit']}, {entry['seconds']:.0f} s; before it: load {entry['load']}{others}.* "
        f"Again: `scripts/bench --only {row.name}`, which runs `{words}`.\n"
    )


def chosen_ratios(
    table: Sequence[Row], measured: Mapping[str, Sequence[Measurement]]
) -> list[tuple[str, Measurement]]:
    """Every ratio, named with its benchmark."""
    return [
        (f"{row.name}: {named(one)}", one) for row in table for one in measured.get(row.name, []) if one.ratio
    ]


def named(one: Measurement) -> str:
    """What was measured, and beside whom."""
    return f"{one.what} / {one.against}" if one.against else one.what


def goal_text(one: Measurement) -> str:
    if one.goal is None:
        return ""
    sign = "x" if one.goal.of == "ratio" else ""
    bounds = [("at least", one.goal.least), ("at most", one.goal.most)]
    return " and ".join(f"{word} {number(value)}{sign}" for word, value in bounds if value is not None)


def met_text(one: Measurement) -> str:
    return {True: "yes", False: "**no**", None: "" if one.goal is None else "unknown"}[one.met]


def number(value: float) -> str:
    """Three digits that mean something.

    >>> [number(value) for value in (0, 10_910.3, 28.71, 1.4, 0.28, 0.012, 5)]
    ['0', '10,910', '28.7', '1.40', '0.28', '0.012', '5']
    """
    if float(value).is_integer():
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"


def times(ratio: float | None) -> str:
    return (
        ""
        if ratio is None
        else f"{ratio:,.0f}x"
        if ratio >= 100
        else f"{ratio:.1f}x"
        if ratio >= 2
        else f"{ratio:.2f}x"
    )


def cell(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)


def anchor(title: str) -> str:
    """As links name a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
