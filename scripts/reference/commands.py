"""Generate the page of commands from their help."""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc

import click

from assay.cli.app import COMMANDS
from assay.core.options.run_spec import list_options

HEAD = """\
# Commands

<!-- made by scripts/generate_reference.py: change the help of the commands instead -->

`assay COMMAND --help` prints the same text. You can write flags with dashes or underscores. [Options](options.md) describes the
options of a run. Exit codes: 0 success, 1 internal error or too many failed requests, 2 usage error, 3 gate failed, 4 cost limit
reached, 5 not enough evidence, 130 Ctrl-C.
"""


def generate_page() -> str:
    """Return the page."""
    pieces = [HEAD]
    for name, (module, summary) in COMMANDS.items():
        command = import_module(module).command
        pieces.append(f"\n## assay {name}\n\n{summary}\n{_format_help(command)}")
        for inner, sub in command.commands.items() if isinstance(command, click.Group) else ():
            pieces.append(f"\n### assay {name} {inner}\n{_format_help(sub)}")
    return "".join(pieces)


def _format_help(command: click.Command) -> str:
    """Format the help text and the flags that are not options of a run."""
    shared = {name for name, _, _ in list_options()}
    text = cleandoc(command.help or "").split("\b")
    pieces = [f"\n{_escape(text[0].strip())}\n"]
    for block in text[1:]:
        pieces.append("\n```text\n" + block.strip("\n").rstrip() + "\n```\n")
    rows = []
    takes_run_options = False
    for parameter in command.params:
        if parameter.name in shared:
            takes_run_options = True
        elif isinstance(parameter, click.Option) and not parameter.hidden:
            flags = ", ".join(f"`{flag}`" for flag in [*parameter.opts, *parameter.secondary_opts])
            metavar = f" `{parameter.metavar}`" if parameter.metavar and not parameter.is_flag else ""
            rows.append(f"| {flags}{metavar} | {_escape(parameter.help or '')} |\n".replace("\n |", " |"))
    if rows:
        pieces.append("\n| flag | description |\n|---|---|\n" + "".join(rows))
    if takes_run_options:
        pieces.append("\nThis command also takes the options of a run.\n")
    return "".join(pieces)


def _escape(text: str) -> str:
    return text.replace("<", "\\<").replace("|", "\\|")
