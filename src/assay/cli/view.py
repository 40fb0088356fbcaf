"""`assay view`: runs, documents and comparisons in a browser."""

from __future__ import annotations

import click

__all__ = ["command"]

_HELP = """Look at runs in a browser: scores, documents, comparisons, and runs while they go on.

WHAT is a folder with runs, or runs: an id, the start of one, a path, `latest`. Without it, the runs in ./assay-runs and
in this folder. The pages are served on this machine only, under an address with a token, until Ctrl-C. Nothing is
changed but the tags you give, and nothing is asked of other machines.

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
    help="The port; any free one unless given.",
)
@click.option("--no_browser", is_flag=True, help="Print the address, and open nothing.")
def command(what: tuple[str, ...], port: int, no_browser: bool) -> int:
    """The command; its help text is above."""
    from assay.viewer.web.server import serve

    def announce(address: str) -> None:
        click.echo(address)
        click.echo("the viewer is open until Ctrl-C; the address lets in whoever has it", err=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(what, port=port, announce=announce)
    except KeyboardInterrupt:
        click.echo("", err=True)
    return 0
