"""Results as a table: every number with its error and its denominator."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from math import floor, log10
from typing import TYPE_CHECKING, Any

from assay.core.endings import ENDINGS
from assay.core.verdicts import Estimate
from assay.store.runs import Run
from assay.store.usage import Spent
from assay.viewer.repeats import repeats_text
from assay.viewer.stops import stops_text

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "accounts",
    "breakdown",
    "dollars",
    "letters_notes",
    "remarks",
    "results_table",
    "results_text",
    "served_notes",
    "spent_text",
]

_INTERVAL = "95 % interval"
_ARROWS = {True: "↑", False: "↓", None: ""}


def results_table(run: Run, *, width: int | None = None) -> Table:
    """A table for a terminal of this width: where the whole one is wider, names fold and the counts are joined, so
    that no number is ever cut. Intervals are the first to go."""
    from rich.console import Console

    tables = (_table(run, narrow=False), _table(run, narrow=False, intervals=False), _table(run, narrow=True))
    console = Console(width=10_000)
    return next(
        (table for table in tables[:2] if width is None or console.measure(table).maximum <= width), tables[2]
    )


def _table(run: Run, *, narrow: bool, intervals: bool = True) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    filters = not narrow or any(estimate.pipeline != "none" for estimate in run.estimates)
    padding = (0, 1, 0, 0) if narrow else (0, 1)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=padding)
    titles = ("task", *(("filter",) if filters else ()), "metric")
    for title in titles if narrow else ("task", "shots", "filter", "metric", ""):
        side: Any = "right" if title == "shots" else "left"
        table.add_column(title, justify=side, no_wrap=not narrow, overflow="fold")
    shows = intervals and not narrow and any(estimate.interval is not None for estimate in run.estimates)
    between = (_INTERVAL,) if shows else ()
    counts = ("documents",) if narrow else ("scored", "unscored", "failed")
    for title in ("value", "± stderr", *between, *counts):
        side = "left" if title in ("± stderr", _INTERVAL) else "right"
        table.add_column(title, justify=side, no_wrap=True, min_width=9 if narrow else None)
    shown = ""
    for depth, name, facts, estimate in rows_of(run):
        label = "" if name == shown else f"{'  ' * depth}{escape(facts.get('alias') or name)}"
        style = "bold" if name in run.groups else ""
        if estimate is None:
            table.add_row(label, style=style)
        else:
            shots = "" if name == shown or facts.get("n_shot") is None else str(facts["n_shot"])
            names = [*([escape(estimate.pipeline)] if filters else []), escape(estimate.metric)]
            arrow = _ARROWS[estimate.higher_is_better]
            stderr = _error(estimate)
            table.add_row(
                label,
                *(names if narrow else [shots, *names, arrow]),
                escape(number(estimate.value)),
                stderr,
                *([_interval(estimate)] if shows else []),
                *(_joined(estimate) if narrow else _apart(estimate)),
                style=style,
            )
            for part, value in breakdown(estimate.value):
                lead = [""] * (3 if not narrow else len(titles) - 1)
                table.add_row(*lead, f"  {escape(part)}", *([] if narrow else [""]), value, style="dim")
        shown = name
    return table


def _interval(estimate: Estimate) -> str:
    if estimate.interval is None:
        return ""
    return f"{digits(estimate.interval[0])} – {digits(estimate.interval[1])}"


def _error(estimate: Estimate) -> str:
    """The standard error; and that of the documents' scores with clusters, which is on their scale."""
    shown = [] if estimate.stderr is None else [f"± {digits(estimate.stderr)}"]
    if estimate.clustered_stderr is not None:
        shown.append(f"(clustered {digits(estimate.clustered_stderr)})")
    return " ".join(shown)


def breakdown(value: Any, *, before: str = "") -> Iterator[tuple[str, str]]:
    """What an aggregation that returns a mapping says of each part: (name, number), nested names joined.

    >>> list(breakdown({"logos": 0.5, "maps": {"old": 1}}))
    [('logos', '0.5000'), ('maps / old', '1')]
    """
    for key, part in value.items() if isinstance(value, dict) else ():
        name = f"{before} / {key}" if before else str(key)
        if isinstance(part, dict):
            yield from breakdown(part, before=name)
        else:
            yield name, number(part)


def _apart(estimate: Estimate) -> list[str]:
    return [str(estimate.scored), _warn(estimate.unscored, "yellow"), _warn(estimate.failed, "red")]


def _joined(estimate: Estimate) -> list[str]:
    """How many were scored, out of how many."""
    total = estimate.scored + estimate.unscored + estimate.failed
    return [str(total) if total == estimate.scored else f"[red]{estimate.scored} of {total}[/red]"]


def results_text(run: Run, *, width: int = 10_000) -> str:
    """The table as plain text."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, force_jupyter=False).print(results_table(run))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join([*lines, *remarks(run)])


def remarks(run: Run) -> list[str]:
    """What stands under the table: scores of another kind, what the model took, what each judge was asked and took."""
    lines = [*repeats_text(run), *stops_text(run), *letters_notes(run), *served_notes(run)]
    if run.spent.any:
        asked = f"{run.spent.requests} request{'s' if run.spent.requests != 1 else ''}"
        lines.append(f"model {run.model}: {asked}; {spent_text(run.spent, _billed(run, ''))}")
    for name, counts in run.judges.items():
        requests = counts["requests"]
        apart = [
            f"{counts[key]} {word}"
            for key, word in (("cached", "from the cache"), ("failed", "failed"))
            if counts[key]
        ]
        more = f" ({', '.join(apart)})" if apart else ""
        spent = run.spent_by_judge.get(name)
        said = f"; {spent_text(spent, _billed(run, name))}" if spent is not None and spent.any else ""
        lines.append(f"judge {name}: {requests} request{'s' if requests != 1 else ''}{more}{said}")
    return lines


def letters_notes(run: Run) -> list[str]:
    """A word about tasks that were asked for letters, whose scores must not be compared with likelihood scores."""
    asked = [name for name, facts in run.tasks.items() if facts.get("asked_for") == "letters"]
    if not asked:
        return []
    return [
        f"{', '.join(asked)}: asked for the letter of a choice (--mc_as_generation);"
        " acc_letter is not comparable with acc from log-likelihoods"
    ]


def served_notes(run: Run) -> list[str]:
    """A warning where a server did not say the same of itself throughout a run: it may not be one model's score."""
    lines = []
    for who, names in run.served.items():
        first, *others = names
        if others:
            said = ", ".join(f"{name} for {names[name]} answers" for name in others)
            whom = f"the judge {who}" if who else "the model"
            lines.append(f"warning: the server of {whom} was not the same throughout: {first}, but {said}")
    return lines


def spent_text(spent: Spent, billing: Mapping[str, Any] | None) -> str:
    """Tokens and cost. A cost nobody knows is said to be unknown; where nobody charges, there is no word about it.

    >>> spent_text(Spent(requests=2, input_tokens=900, output_tokens=40), None)
    '900 tokens read, 40 written'
    """
    cached = f" ({spent.cached_tokens} from the service's cache)" if spent.cached_tokens else ""
    said = f"{spent.input_tokens} tokens read{cached}, {spent.output_tokens} written"
    if billing is None and not spent.priced:
        return said
    if spent.cost_usd is None:
        return f"{said}; cost unknown: no price for `{(billing or {}).get('billed_as', '?')}`"
    missing = spent.requests - spent.priced
    more = f" and {missing} request{'s' if missing != 1 else ''} of unknown cost" if missing else ""
    date = f" by prices of {billing['date']}" if billing and billing.get("date") else ""
    return f"{said}; {dollars(spent.cost_usd)}{more}{date}"


def dollars(amount: float) -> str:
    """Money as people read it: cents, or two digits of less.

    >>> dollars(12.345), dollars(0.00123), dollars(0.0000112), dollars(0)
    ('$12.35', '$0.0012', '$0.000011', '$0.00')
    """
    if amount >= 1 or amount == 0:
        return f"${amount:.2f}"
    return f"${amount:.{1 - floor(log10(amount))}f}"


def _billed(run: Run, name: str) -> Mapping[str, Any] | None:
    known: Mapping[str, Any] | None = run.facts.get("billing", {}).get(name)
    return known


def accounts(run: Run) -> list[str]:
    """How the documents of each task ended, where not all were scored; and what the score might be.

    `sums: 90 scored, 6 truncated, 4 unparsed; if those were all wrong or all right: exact_match between 0.72 and 0.82`
    """
    lines = []
    for task in run.tasks:
        counts = run.outcomes(task)
        if set(counts) <= {"scored", "skipped"}:
            continue
        said = ", ".join(f"{counts[ending]} {ending}" for ending in ENDINGS if counts.get(ending))
        bounds = "; ".join(
            f"{estimate.metric}{f' ({estimate.pipeline})' if estimate.pipeline != 'none' else ''} between "
            f"{digits(estimate.bounds[0])} and {digits(estimate.bounds[1])}"
            for estimate in run.estimates
            if estimate.task == task and estimate.bounds is not None
        )
        lines.append(f"{task}: {said}{f'; if those were all wrong or all right: {bounds}' if bounds else ''}")
    return lines


def rows_of(run: Run) -> Iterator[tuple[int, str, dict[str, Any], Estimate | None]]:
    """(depth, name, facts, estimate) in reading order: a group before its members, indented."""
    by_name: dict[str, list[Estimate]] = {}
    for estimate in run.estimates:
        by_name.setdefault(estimate.task, []).append(estimate)
    for name in run.facts.get("top", []):
        yield from _rows(run, by_name, name, 0)


def _rows(
    run: Run, by_name: dict[str, list[Estimate]], name: str, depth: int
) -> Iterator[tuple[int, str, dict[str, Any], Estimate | None]]:
    facts = run.groups.get(name) or run.tasks.get(name, {})
    estimates = by_name.get(name, [])
    for estimate in estimates or [None]:  # type: ignore[list-item]
        yield depth, name, facts, estimate
    for member in facts.get("members", ()):
        yield from _rows(run, by_name, member, depth + 1)


def number(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "–" if value is None else "…" if isinstance(value, (dict, list)) else str(value)
    return digits(value) if isinstance(value, float) else str(value)


def digits(value: float) -> str:
    """Four decimals; powers of ten where those would fill the line.

    >>> digits(0.5), digits(44133170283059224.0)
    ('0.5000', '4.4133e+16')
    """
    return f"{value:.4f}" if abs(value) < 1e7 else f"{value:.4e}"


def _warn(count: int, colour: str) -> str:
    return f"[{colour}]{count}[/{colour}]" if count else "0"
