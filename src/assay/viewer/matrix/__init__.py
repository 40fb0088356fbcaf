"""A table of several runs: tasks in rows, runs in columns, every score with its error; as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

from assay.viewer.matrix.formats import FORMATS, NumberStyle, build_text_tables, format_matrix
from assay.viewer.matrix.score_matrix import Matrix, MatrixCell, MatrixColumn, MatrixRow, build_matrix

__all__ = [
    "FORMATS",
    "Matrix",
    "MatrixCell",
    "MatrixColumn",
    "MatrixRow",
    "NumberStyle",
    "build_matrix",
    "build_text_tables",
    "format_matrix",
]
