"""Runs side by side: tasks in rows, runs in columns, each number with its error; for reports, papers and spreadsheets."""

from __future__ import annotations

from assay.viewer.matrix.collecting import Cell, Column, Matrix, Row, make_matrix
from assay.viewer.matrix.formats import FORMATS, Style, written

__all__ = ["FORMATS", "Cell", "Column", "Matrix", "Row", "Style", "make_matrix", "written"]
