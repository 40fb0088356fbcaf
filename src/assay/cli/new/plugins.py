"""`assay new model|metric|filter`: create an installable plugin with a passing test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from assay.cli.new.files import validate_name, write_files
from assay.cli.new.plugin_templates import FILTER_FILES, METRIC_FILES, MODEL_FILES

__all__ = ["filter_command", "metric_command", "model_command"]

_HELP = """Create a {kind} plugin: an installable package with code, an entry point and a passing test.

\b
Examples:
  assay new {kind} {example}
  pip install -e ./{example} && pytest {example}
"""


def _command(kind: str, example: str, files: Mapping[str, str]) -> click.Command:
    @click.command(kind, help=_HELP.format(kind=kind, example=example))
    @click.argument("name")
    @click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Output folder. [default: ./NAME]",
    )
    def create(name: str, output: Path | None) -> None:
        validate_name(name)
        folder = output or Path(name)
        title = "".join(part.capitalize() for part in name.split("_"))

        def fill(text: str) -> str:
            return text.replace("@name@", name).replace("@Name@", title)

        write_files(folder, {fill(path): fill(text) for path, text in files.items()})
        click.echo(f"next: `pip install -e {folder}`, then `pytest {folder}`; `assay ls {kind}s` lists it")

    return create


model_command = _command("model", "my_server", MODEL_FILES)
metric_command = _command("metric", "letters_right", METRIC_FILES)
filter_command = _command("filter", "last_line", FILTER_FILES)
