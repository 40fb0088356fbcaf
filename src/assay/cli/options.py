"""Flags from the one declaration of every option (`assay.core.runspec`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from assay.core.errors import BadOption
from assay.core.runspec import Option, RunSpec, run_options

__all__ = ["OptionsCommand", "add_run_options", "given_options", "spec_from"]


class _Value(click.ParamType[Any]):
    """A text read by the option's own parser."""

    def __init__(self, name: str, details: Option) -> None:
        self.name = details.metavar
        self._flag = f"--{name}"
        self._details = details

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._details.parse(value)
        except BadOption as error:
            raise BadOption(error.what, where=error.where or self._flag, hint=error.hint) from None


class OptionsCommand(click.Command):
    """A command whose `--tasks` takes several values: `--tasks a b c` as well as `--tasks a,b,c`."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        many = {flag for parameter in self.params if parameter.name == "tasks" for flag in parameter.opts}
        spread: list[str] = []
        last = ""
        for argument in arguments:
            if argument.startswith("-") and argument != "-":
                last = argument if argument in many else ""
                spread.append(argument)
            elif last and spread[-1] != last:
                spread += [last, argument]
            else:
                spread.append(argument)
        return super().parse_args(context, spread)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Options under the headings they were declared with."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def add_run_options(command: click.Command, names: Iterable[str] | None = None) -> None:
    """Give a command the run's options (or some of them), and `--config`."""
    wanted = None if names is None else set(names)
    for name, default, details in run_options():
        if wanted is None or name in wanted:
            command.params.append(_flag(name, default, details))
    config = click.Option(
        ["-C", "--config"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="YAML file with any of these options (`-` for standard input); flags win.",
    )
    config.section = "Other"  # type: ignore[attr-defined]
    command.params.append(config)


def _flag(name: str, default: Any, details: Option) -> click.Option:
    declared = [f"--{name}"] + ([f"-{details.short}"] if details.short else [])
    shown = f"{details.help}{_default_text(default)}"
    if details.flag:
        option = click.Option(declared, is_flag=True, default=None, help=shown)
    else:
        bare: dict[str, Any] = {}
        if details.bare is not None:
            bare = {"is_flag": False, "flag_value": str(details.bare).lower()}
        option = click.Option(
            declared,
            type=_Value(name, details),
            metavar=details.metavar,
            multiple=details.many,
            default=None,
            help=shown,
            **bare,
        )
    option.section = details.section  # type: ignore[attr-defined]
    return option


def _default_text(default: Any) -> str:
    if default is None or default is False or default in ({}, []):
        return ""
    shown = ",".join(str(item) for item in default) if isinstance(default, (list, tuple)) else str(default)
    return f" [default: {shown}]"


def spec_from(values: dict[str, Any], config: Path | None) -> RunSpec:
    """Options from a config file, then from flags, which win."""
    return RunSpec.of(given_options(values, config), where=str(config) if config else "")


def given_options(values: dict[str, Any], config: Path | None) -> dict[str, Any]:
    """The options somebody gave, in a config file or as flags, which win; not the defaults."""
    settings: dict[str, Any] = {}
    if config is not None:
        settings |= {str(name).replace("-", "_"): value for name, value in _read_config(config).items()}
    for name, value in values.items():
        if value is None or value == ():
            continue
        settings[name] = (
            [item for group in value for item in group]
            if isinstance(value, tuple) and value and isinstance(value[0], list)
            else value
        )
    return settings


def _read_config(path: Path) -> dict[str, Any]:
    from assay.engine.planning.config_files import read_yaml

    loaded = read_yaml(path, "config file")
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise BadOption(
            "a config file is a mapping of options", where=str(path), hint="for instance `tasks: [arc_easy]`"
        )
    return loaded
