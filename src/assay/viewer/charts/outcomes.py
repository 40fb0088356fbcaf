"""Outcomes of documents: a bar for each task, a colour for each ending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.core.records.endings import ENDINGS
from assay.viewer.charts.theme import (
    OUTCOME_COLOURS,
    Figure,
    Theme,
    build_axis,
    build_layout,
    build_row_axis,
    escape_text,
    format_label,
)

__all__ = ["OutcomeBar", "build_outcomes_figure"]

_OUTCOME_MEANINGS: dict[str, str] = {str(ending): meaning for ending, meaning in ENDINGS.items()} | {
    "open": "not processed yet"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBar:
    """The documents of one task (or of a run) by ending."""

    name: str
    counts: Mapping[str, int]
    """Documents by ending (`ENDINGS`); `open` for those not processed yet."""


def build_outcomes_figure(bars: Sequence[OutcomeBar], theme: Theme) -> Figure:
    """Build stacked bars with the share of each ending; endings without documents are omitted."""
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
                    f"<b>{escape_text(bar.name)}</b><br>{count} of {total} {ending} ({share:.1%})<br>{_OUTCOME_MEANINGS[ending]}"
                    for bar, count, total, share in zip(bars, counts, totals, shares, strict=True)
                ],
            }
        )
    layout = {
        **build_layout(theme, rows=len(bars), legend=True),
        "barmode": "stack",
        "xaxis": build_axis(
            theme,
            "share of documents",
            tickformat=".0%",
            range=[0, 1.005],
            tickvals=[0, 0.25, 0.5, 0.75, 1],
        ),
        "yaxis": build_row_axis(theme, [format_label(bar.name) for bar in bars]),
    }
    return {"data": data, "layout": layout}
