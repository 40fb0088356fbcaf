"""Charts as plain dictionaries that plotly's script draws: records in, `{"data": […], "layout": {…}}` out.

Used by the web pages and the report alike. Nothing here reads a store, and nothing needs the package `plotly`: it is only
where the script comes from.
"""

from __future__ import annotations

from assay.viewer.charts.forest import Difference, forest_figure
from assay.viewer.charts.outcomes import OutcomeBar, outcomes_figure
from assay.viewer.charts.scores import ScoreMark, on_one_scale, scores_figure
from assay.viewer.charts.spread import CategoryMark, SpreadBar, categories_figure, histogram_figure
from assay.viewer.charts.theme import CONFIG, DARK, LIGHT, OUTCOME_COLOURS, Figure, Theme, themed
from assay.viewer.charts.throughput import Pace, Pause, throughput_figure

__all__ = [
    "CONFIG",
    "DARK",
    "LIGHT",
    "OUTCOME_COLOURS",
    "CategoryMark",
    "Difference",
    "Figure",
    "OutcomeBar",
    "Pace",
    "Pause",
    "ScoreMark",
    "SpreadBar",
    "Theme",
    "categories_figure",
    "forest_figure",
    "histogram_figure",
    "on_one_scale",
    "outcomes_figure",
    "scores_figure",
    "themed",
    "throughput_figure",
]
