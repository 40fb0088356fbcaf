"""Charts as plotly dictionaries: records in, `{"data": […], "layout": {…}}` out.

The web pages, the report and notebooks share them. No module here reads the store or imports `plotly`: that package only
supplies the script that draws the figures.
"""

from __future__ import annotations

from assay.viewer.charts.differences import Difference, build_forest_figure
from assay.viewer.charts.distributions import (
    CategoryMark,
    HistogramBar,
    build_categories_figure,
    build_histogram_figure,
)
from assay.viewer.charts.history import HistoryPoint, build_history_figure
from assay.viewer.charts.outcomes import OutcomeBar, build_outcomes_figure
from assay.viewer.charts.scores import ScoreMark, build_scores_figure, group_by_scale
from assay.viewer.charts.theme import (
    CONFIG,
    DARK,
    LIGHT,
    OUTCOME_COLOURS,
    Figure,
    Theme,
    build_themed_figures,
)
from assay.viewer.charts.throughput import Pause, Throughput, build_throughput_figure

__all__ = [
    "build_history_figure",
    "CONFIG",
    "DARK",
    "LIGHT",
    "OUTCOME_COLOURS",
    "CategoryMark",
    "Difference",
    "Figure",
    "HistoryPoint",
    "HistogramBar",
    "OutcomeBar",
    "Pause",
    "ScoreMark",
    "Theme",
    "Throughput",
    "build_categories_figure",
    "build_forest_figure",
    "build_histogram_figure",
    "build_outcomes_figure",
    "build_scores_figure",
    "build_themed_figures",
    "build_throughput_figure",
    "group_by_scale",
]
