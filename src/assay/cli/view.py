"""`assay view`: browse runs, documents and comparisons in a web browser."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from assay.core.errors import InvalidOption

__all__ = ["command"]

_HELP = """Browse runs in a web browser: scores, documents, comparisons, and live progress.

WHAT is a folder with runs, or runs: a run id, the start of one, a path, `latest`. [default: the runs in ./assay-runs and
the current folder] The server listens on localhost only, requires the token in its URL, and runs until Ctrl-C. It changes
nothing except tags, labels and saved views, and makes no network requests.

\b
Examples:
  assay view
  assay view results/
  assay view latest
  assay view --port 8321 --no_browser        then from a laptop: ssh -L 8321:127.0.0.1:8321 machine
  assay view latest --bundle site/           a static copy: open site/index.html, or put the folder on a web host
"""


@click.command("view", help=_HELP)
@click.argument("what", nargs=-1, metavar="[WHAT]...")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port. [default: a free port]",
)
@click.option("--no_browser", is_flag=True, help="Print the URL without opening a browser.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the pages as a static site into DIR instead of serving them. It needs no server.",
)
@click.option("--no_media", is_flag=True, help="With --bundle: leave out images, audio and video.")
@click.option(
    "--max_documents",
    type=click.IntRange(1),
    metavar="N",
    help="With --bundle: include the first N documents of each run, rounded up to pages of 50. [default: all]",
)
def command(
    what: tuple[str, ...],
    port: int,
    no_browser: bool,
    bundle: Path | None,
    no_media: bool,
    max_documents: int | None,
) -> int:
    """Run the command; its help text is above."""
    from assay.engine.imports.run_cache import replace_results_by_runs

    what = tuple(replace_results_by_runs(what))
    if bundle is not None:
        return _write_site(what, bundle, has_media=not no_media, max_documents=max_documents)
    if no_media or max_documents is not None:
        name = "--no_media" if no_media else "--max_documents"
        raise InvalidOption(f"{name} is only for --bundle", where=name, hint="add --bundle DIR")
    from assay.viewer.web.server import serve

    def announce(address: str) -> None:
        click.echo(address)
        click.echo(
            "press Ctrl-C to stop the viewer; anyone with this URL on this machine can open it", err=True
        )
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(what, port=port, announce=announce)
    except KeyboardInterrupt:
        click.echo("", err=True)
    return 0


def _write_site(what: tuple[str, ...], folder: Path, *, has_media: bool, max_documents: int | None) -> int:
    from assay.viewer.web.server import check_packages

    check_packages()
    from assay.viewer.web.site.writer import write_site

    is_terminal = sys.stderr.isatty()
    interval_s = 0.2 if is_terminal else 10.0
    shown_at = time.monotonic()

    def show(done: int, found: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at < interval_s and not (is_terminal and done == found):
            return
        shown_at = time.monotonic()
        text = f"{done} pages written, {found} found"
        click.echo(f"\r{text}" if is_terminal else text, nl=not is_terminal, err=True)

    written = write_site(what, folder, has_media=has_media, max_documents=max_documents, on_progress=show)
    if is_terminal:
        click.echo("", err=True)
    for key, why in written.left_out.items():
        click.echo(f"warning: the site leaves out the run {key}, which cannot be indexed: {why}", err=True)
    click.echo(str(folder / "index.html"))
    runs = "1 run" if written.runs == 1 else f"{written.runs} runs"
    size = written.size_bytes / 2**20
    click.echo(f"{runs}, {written.pages} pages, {written.files} files, {size:.1f} MB", err=True)
    return 0
