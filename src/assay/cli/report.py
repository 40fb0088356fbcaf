"""`assay report`: write a report of runs as a single HTML file or a PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli.arguments import find_run_or_results, in_option
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.store.runs.run import Run

__all__ = ["command"]

_HELP = """Write a report of runs as a single HTML file: charts, tables, settings and some documents.

The file is self-contained: it needs no server and no network, and opens in any browser. With several runs, the first is
the baseline. Needs the extra `viewer`.

\b
Examples:
  assay report latest
  assay report base tuned -o report.html --documents 30
  assay report latest --pdf -o report.pdf
"""


@click.command("report", help=_HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output file. [default: report.html or report.pdf]",
)
@click.option("--pdf", is_flag=True, help="Write a PDF; needs Chromium, Chrome or Edge.")
@click.option(
    "--documents", type=int, default=12, metavar="N", help="Number of documents to include. [default: 12]"
)
@click.option(
    "--seed", type=int, default=0, metavar="N", help="Seed for the choice of documents. [default: 0]"
)
@click.option("--title", default="", metavar="TEXT", help="Title of the report. [default: the model names]")
@click.option("--by", "category", default="", metavar="FIELD", help="Break scores down by this field.")
@in_option
def command(
    runs: tuple[str, ...],
    output: Path | None,
    pdf: bool,
    documents: int,
    seed: int,
    title: str,
    category: str,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from assay.cli.tables import echo_wrapped
    from assay.core.installation import assay_version
    from assay.viewer.atomic_files import write_atomically
    from assay.viewer.report import ReportOptions, build_report, find_browser, render_page, write_pdf
    from assay.viewer.report.html_page import read_plotly_script

    options = ReportOptions(documents=documents, seed=seed, title=title, category=category)
    path = output or Path("report.pdf" if pdf else "report.html")
    read_plotly_script()  # fail early if a package is missing
    browser = find_browser() if pdf else ""
    opened = [_open_latest_scoring(find_run_or_results(word, folders)) for word in runs]
    try:
        report = build_report(opened, options, version=assay_version())
    finally:
        for run in opened:
            run.close()
    if pdf:
        write_pdf(render_page(report, packed=False), path, browser=browser)
    else:
        write_atomically(path, render_page(report))
    for sentence in report.conclusions:
        echo_wrapped(f"{sentence}.", err=True)
    size = path.stat().st_size / 1e6
    click.echo(escape_control_characters(f"wrote {path} ({size:.1f} MB)"), err=True)
    return 0


def _open_latest_scoring(folder: Path) -> Run:
    """Open the latest scoring of a run if it covers all tasks, else the run."""
    from assay.store.runs.run import Run

    run = Run(folder)
    last = run.scored(None)
    return last if last is run or set(last.tasks) >= set(run.tasks) else run
