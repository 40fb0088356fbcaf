"""Plots of runs: the numbers of each chart as a table, a summary in words, and the figure.

The web pages, the report and notebooks show the same plots. `viewer/charts` draws them.
"""

from __future__ import annotations

from assay.viewer.plots.records import Plot, PlotTable

__all__ = ["Plot", "PlotTable"]
