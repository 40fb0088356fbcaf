"""Reports: one self-contained HTML file, readable without Assay and without a server."""

from __future__ import annotations

from assay.viewer.report.content import ReportOptions, build_report
from assay.viewer.report.html_page import render_page
from assay.viewer.report.pdf import find_browser, write_pdf

__all__ = ["ReportOptions", "build_report", "find_browser", "render_page", "write_pdf"]
