"""A report: one HTML file with everything in it, for people who have neither Assay nor a server."""

from __future__ import annotations

from assay.viewer.report.content import ReportOptions, make_report
from assay.viewer.report.page import render_page
from assay.viewer.report.pdf import find_browser, write_pdf

__all__ = ["ReportOptions", "find_browser", "make_report", "render_page", "write_pdf"]
