"""How documents ended: a bar for each task, a colour for each ending, the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.core.endings import ENDINGS
from assay.viewer.charts.theme import OUTCOME_COLOURS, Figure, Theme, axis, frame, label, plain, rows_axis

__all__ = ["OutcomeBar", "outcomes_figure"]

_MEANINGS: dict[str, str] = {str(ending): meaning for ending, meaning in ENDINGS.items()} | {
    "open": "not reached yet"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBar:
    """The documents of one task (or of a run) by ending."""

    name: str
    counts: Mapping[str, int]
    """By the words of `ENDINGS`; `open` for documents that were not reached yet."""


def outcomes_figure(bars: Sequence[OutcomeBar], theme: Theme) -> Figure:
    """Shares of each bar's documents, side by side; endings nobody met are left out."""
    met = [ending for ending in OUTCOME_COLOURS if any(bar.counts.get(ending) for bar in bars)]
    totals = [sum(bar.counts.values()) or 1 for bar in bars]
    data = []
    for ending in met:
        counts = [bar.counts.get(ending, 0) for bar in bars]
        shares = [count / total for count, total in zip(counts, totals, strict=True)]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": ending,
                "x": shares,
                "y": list(range(len(bars))),
                "width": 0.62,
                "marker": {"color": OUTCOME_COLOURS[ending], "line": {"width": 0}},
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{plain(bar.name)}</b><br>{count} of {total} {ending} ({share:.1%})<br>{_MEANINGS[ending]}"
                    for bar, count, total, share in zip(bars, counts, totals, shares, strict=True)
                ],
            }
        )
    layout = {
        **frame(theme, rows=len(bars), legend=True),
        "barmode": "stack",
        "xaxis": axis(
            theme,
            "share of the documents",
            tickformat=".0%",
            range=[0, 1.005],
            tickvals=[0, 0.25, 0.5, 0.75, 1],
        ),
        "yaxis": rows_axis(theme, [label(bar.name) for bar in bars]),
    }
    return {"data": data, "layout": layout}
