"""Commands that are shown: read by the parser that reads them on the command line, without running them."""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from typing import Any

import click
from tests.docs.blocks import PROJECT
from tools.oracle.replay import main as oracle

from assay.cli.app import app
from assay.core.errors import AssayError
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import RunSpec
from assay.models import make_model
from assay.tasks.files.index import TaskIndex, builtin_root

__all__ = ["NotValid", "check_command", "commands_of", "split_commands"]

PROGRAMS = ("assay", ".venv/bin/assay", "assay.exe")
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
ELLIPSIS = "…"
"""In a command: and whatever else you want to say."""


class NotValid(AssertionError):
    """The parser does not take a command that is shown."""


def split_commands(line: str) -> list[list[str]]:
    """The commands of a shell line as words: comments away, `&&` and `;` between them."""
    commands: list[list[str]] = [[]]
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;")
    lexer.whitespace_split = True
    for word in lexer:
        if word in ("&&", ";"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def commands_of(text: str) -> list[list[str]]:
    """Every `assay …` in a text that is not a program: quoted in a YAML file, behind `ssh` or `srun`."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if behind := re.search(r"(?<![\w./'\"\[-])(?:\.venv/bin/)?assay (?=[a-z])(.*)", line):
            words = next(iter(split_commands(behind[0])), [])
            if len(words) > 1 and words[1] != "is":
                found.append(words)
    return found


def check_command(words: list[str], *, whole: bool = True) -> None:
    """Every subcommand, flag, value, model name and argument of a model is one that exists.

    `whole=False` for commands that are mentioned in a sentence, which need not have all their arguments.
    """
    program, *arguments = words
    if program in PROGRAMS:
        _check_assay(_with_names(arguments), whole)
    elif program.endswith("pip"):
        _check_extras(arguments)
    elif words[:3] == ["python", "-m", "tools.oracle.replay"]:
        _parse(oracle, words[3:], whole, click.Context(oracle))


def _with_names(arguments: list[str]) -> list[str]:
    """Placeholders filled in: `--model …`, `--replicas N`; other `…` away."""
    filled = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        if word == ELLIPSIS and before.startswith("--"):
            filled.append("NAME")
        elif word != ELLIPSIS:
            filled.append("1" if word == "N" else word)
    return filled


def _check_assay(arguments: list[str], whole: bool) -> None:
    command: click.Command = app
    context = click.Context(app, info_name="assay", **app.context_settings)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        found = command.get_command(context, name)
        if name.isupper():
            return  # `assay COMMAND --help`
        if found is None:
            raise NotValid(f"unknown command `{name}`")
        command = found
    _parse(command, arguments, whole, context)


def _parse(command: click.Command, arguments: list[str], whole: bool, context: click.Context) -> None:
    try:
        with command.make_context(command.name, list(arguments), parent=context, obj=arguments) as parsed:
            _check_values(parsed.params)
    except click.exceptions.Exit:
        pass  # --help, --version
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError) as error:
        if whole and not isinstance(command, click.Group):
            raise NotValid(error.format_message()) from None
    except click.BadOptionUsage as error:
        if whole or "requires an argument" not in error.format_message():
            raise NotValid(error.format_message()) from None
    except click.BadParameter as error:
        if not isinstance(error.param and error.param.type, (click.Path, click.File)):
            raise NotValid(error.format_message()) from None  # a file need not be there
    except click.ClickException as error:
        raise NotValid(error.format_message()) from None
    except AssayError as error:
        raise NotValid(str(error)) from None


def _check_values(values: dict[str, Any]) -> None:
    """Names that mean something: models and their arguments, judges, sinks."""
    given = {name: value for name, value in values.items() if name in ("model", "model_args") and value}
    if "model_args" in values and given and not str(given.get("model", "")).isupper():  # `--model NAME`
        spec = RunSpec.of(given)
        make_model(spec.model, spec.model_args, batch_api=values.get("batch_api"))
    for word in _flat(values.get("judge")):
        name, _, rest = word.partition(",")
        make_model(name, parse_arguments(rest) if rest else {})
    for name in _flat(values.get("tasks")):
        if name.startswith("assay/") and name.removeprefix("assay/") not in _builtin_names():
            raise NotValid(f"no task that ships with Assay is called `{name}`")
    if values.get("sink"):
        from assay.viewer.sinks import SINKS

        for word in _flat(values["sink"]):
            SINKS.get(word.partition(",")[0], where="--sink")


def _flat(value: Any) -> list[str]:
    """An option that may be given several times, each time with several values."""
    given = [value] if isinstance(value, str) else value or []
    return [word for item in given for word in (item if isinstance(item, list) else [item])]


@cache
def _builtin_names() -> frozenset[str]:
    index = TaskIndex.build([builtin_root()])
    return frozenset(name for kind in ("task", "group", "tag") for name in index.names(kind))


def _check_extras(arguments: list[str]) -> None:
    for argument in arguments:
        for extras in re.findall(r"^(?:assay-harness|\.)\[(.+)\]$", argument):
            unknown = set(extras.split(",")) - EXTRAS.keys()
            if unknown:
                raise NotValid(f"no extra is called {', '.join(sorted(unknown))}")
