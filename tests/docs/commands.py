"""Parse commands of the documentation with the real parser, without running them."""

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

__all__ = ["InvalidCommand", "check_command", "find_commands", "split_commands"]

PROGRAMS = ("assay", ".venv/bin/assay", "assay.exe")
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
ELLIPSIS = "…"
"""In a command: any further arguments."""


class InvalidCommand(AssertionError):
    """The parser rejects a command."""


def split_commands(line: str) -> list[list[str]]:
    """Split a shell line without comments at `&&` and `;` into commands."""
    commands: list[list[str]] = [[]]
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;")
    lexer.whitespace_split = True
    for word in lexer:
        if word in ("&&", ";"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def find_commands(text: str) -> list[list[str]]:
    """Find every `assay …` in a text that is not a shell script: in a YAML file, after `ssh` or `srun`."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if match := re.search(r"(?<![\w./'\"\[-])(?:\.venv/bin/)?assay (?=[a-z])(.*)", line):
            words = next(iter(split_commands(match[0])), [])
            if len(words) > 1 and words[1] != "is":
                found.append(words)
    return found


def check_command(words: list[str], *, whole: bool = True) -> None:
    """Check that every subcommand, flag, value, model name and model argument exists.

    `whole=False` is for commands in a sentence, which may lack arguments.
    """
    program, *arguments = words
    if program in PROGRAMS:
        _check_assay(_fill_placeholders(arguments), whole)
    elif program.endswith("pip"):
        _check_extras(arguments)
    elif words[:3] == ["python", "-m", "tools.oracle.replay"]:
        _parse(oracle, words[3:], whole, click.Context(oracle))


def _fill_placeholders(arguments: list[str]) -> list[str]:
    """Fill in placeholders (`--model …`, `--replicas N`) and remove other `…`."""
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
            raise InvalidCommand(f"unknown command `{name}`")
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
            raise InvalidCommand(error.format_message()) from None
    except click.BadOptionUsage as error:
        if whole or "requires an argument" not in error.format_message():
            raise InvalidCommand(error.format_message()) from None
    except click.BadParameter as error:
        if not isinstance(error.param and error.param.type, (click.Path, click.File)):
            raise InvalidCommand(error.format_message()) from None  # the file may be missing
    except click.ClickException as error:
        raise InvalidCommand(error.format_message()) from None
    except AssayError as error:
        raise InvalidCommand(str(error)) from None


def _check_values(values: dict[str, Any]) -> None:
    """Check names: models and their arguments, judges, tasks, sinks."""
    given = {name: value for name, value in values.items() if name in ("model", "model_args") and value}
    own = any(path.endswith(".py") for path in _flatten(values.get("include_path")))  # defines the model
    name = str(given.get("model", ""))
    is_placeholder = name.isupper() or name.endswith("/NAME")  # `--model NAME`
    if "model_args" in values and given and not is_placeholder and not own:
        spec = RunSpec.of(given)
        make_model(spec.model, spec.model_args, batch_api=values.get("batch_api"))
    for word in _flatten(values.get("judge")):
        name, _, rest = word.partition(",")
        make_model(name, parse_arguments(rest) if rest else {})
    for name in _flatten(values.get("tasks")):
        if name.startswith("assay/") and name.removeprefix("assay/") not in _builtin_names():
            raise InvalidCommand(f"no built-in task is called `{name}`")
    if values.get("sink"):
        from assay.viewer.sinks import SINKS

        for word in _flatten(values["sink"]):
            SINKS.get(word.partition(",")[0], where="--sink")


def _flatten(value: Any) -> list[str]:
    """Flatten the values of an option that can be repeated."""
    values = [value] if isinstance(value, str) else value or []
    return [word for item in values for word in (item if isinstance(item, list) else [item])]


@cache
def _builtin_names() -> frozenset[str]:
    index = TaskIndex.build([builtin_root()])
    return frozenset(name for kind in ("task", "group", "tag") for name in index.names(kind))


def _check_extras(arguments: list[str]) -> None:
    for argument in arguments:
        for extras in re.findall(r"^(?:assay-harness|\.|\./assay|\S+\.whl)\[(.+?)\](?: @ .+)?$", argument):
            unknown = set(extras.split(",")) - EXTRAS.keys()
            if unknown:
                raise InvalidCommand(f"no extra is called {', '.join(sorted(unknown))}")
