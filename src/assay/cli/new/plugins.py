"""`assay new model|metric|filter`: a small distribution that installs, is found by name, and passes its own test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from assay.cli.new.files import check_name, write_files
from assay.cli.new.skeletons import FILTER, METRIC, MODEL

__all__ = ["filter_command", "metric_command", "model_command"]

_HELP = """Write a {kind} of your own as a distribution: code, its name for Assay, a test that passes.

\b
Examples:
  assay new {kind} {example}
  pip install -e ./{example} && pytest {example}
"""


def _command(kind: str, example: str, files: Mapping[str, str]) -> click.Command:
    @click.command(kind, help=_HELP.format(kind=kind, example=example))
    @click.argument("name")
    @click.option(
        "-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Folder [default: ./NAME]"
    )
    def new(name: str, output: Path | None) -> None:
        check_name(name)
        folder = output or Path(name)
        title = "".join(part.capitalize() for part in name.split("_"))

        def filled(text: str) -> str:
            return text.replace("@name@", name).replace("@Name@", title)

        write_files(folder, {filled(path): filled(text) for path, text in files.items()})
        click.echo(f"next: `pip install -e {folder}`, then `pytest {folder}`; `assay ls {kind}s` lists it")

    return new


model_command = _command("model", "my_server", MODEL)
metric_command = _command("metric", "letters_right", METRIC)
filter_command = _command("filter", "last_line", FILTER)
