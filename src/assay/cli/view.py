"""`assay view`: browse runs, documents and comparisons in a web browser."""

from __future__ import annotations

import click

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
def command(what: tuple[str, ...], port: int, no_browser: bool) -> int:
    """Run the command; its help text is above."""
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
