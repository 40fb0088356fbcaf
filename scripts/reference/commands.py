"""The page of commands, as their help says it."""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc

import click

from assay.cli.app import COMMANDS
from assay.core.options.run_spec import list_options

HEAD = """\
# Commands

<!-- made by scripts/generate_reference.py: change the help of the commands instead -->

`assay COMMAND --help` says the same. Flags may be written with dashes or underscores. Options of a run have a page of
[their own](options.md). Exit codes: 0 done, 1 Assay's fault or too many failed requests, 2 a mistake of the user's, 3 a gate
said no, 4 the cost limit was reached, 130 Ctrl-C.
"""


def page() -> str:
    """The page."""
    pieces = [HEAD]
    for name, (module, summary) in COMMANDS.items():
        command = import_module(module).command
        pieces.append(f"\n## assay {name}\n\n{summary}\n{_help(command)}")
        for inner, sub in command.commands.items() if isinstance(command, click.Group) else ():
            pieces.append(f"\n### assay {name} {inner}\n{_help(sub)}")
    return "".join(pieces)


def _help(command: click.Command) -> str:
    """Usage, the words of the help, and the flags that are not options of a run."""
    shared = {name for name, _, _ in list_options()}
    text = cleandoc(command.help or "").split("\b")
    pieces = [f"\n{_escaped(text[0].strip())}\n"]
    for block in text[1:]:
        pieces.append("\n```text\n" + block.strip("\n").rstrip() + "\n```\n")
    rows = []
    runs = False
    for parameter in command.params:
        if parameter.name in shared:
            runs = True
        elif isinstance(parameter, click.Option) and not parameter.hidden:
            flags = ", ".join(f"`{flag}`" for flag in [*parameter.opts, *parameter.secondary_opts])
            metavar = f" `{parameter.metavar}`" if parameter.metavar and not parameter.is_flag else ""
            rows.append(f"| {flags}{metavar} | {_escaped(parameter.help or '')} |\n".replace("\n |", " |"))
    if rows:
        pieces.append("\n| flag | what it does |\n|---|---|\n" + "".join(rows))
    if runs:
        pieces.append("\nAlso options of a run.\n")
    return "".join(pieces)


def _escaped(text: str) -> str:
    return text.replace("<", "\\<").replace("|", "\\|")
