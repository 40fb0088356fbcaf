"""Command-line flags generated from the option declarations of `RunSpec`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from assay.core.errors import AssayError, ErrorGroup, InvalidOption
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import Option, RunSpec, list_options

__all__ = ["OptionsCommand", "add_run_options", "build_run_spec", "collect_options"]

_PLACES = "assay.config_places"
"""Key of the click context: the places of the options that come from a config file."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w.-]*=")


class _OptionType(click.ParamType[Any]):
    """A click type that uses the parser of the option."""

    def __init__(self, name: str, details: Option) -> None:
        self.name = details.metavar
        self._flag = f"--{name}"
        self._details = details

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._details.parse(value)
        except InvalidOption as error:
            raise InvalidOption(error.what, where=error.where or self._flag, hint=error.hint) from None


class OptionsCommand(click.Command):
    """A command with options of a run.

    Its `--tasks` and `--history` accept several values: `--tasks a b c` as well as `--tasks a,b,c`. So do its options with arguments:
    `--gen_kwargs a=1 b=2`. An error about an option of the config file refers to its line in the file.
    """

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except AssayError as error:
            _refer_to_config(error, context.meta.get(_PLACES, {}))
            raise

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        expanded: list[str] = []
        flag = ""  # the last one with further values
        takes_words = False
        for argument in arguments:
            if argument.startswith("-") and argument != "-":
                found = self._find_parameter(argument)
                takes_words = found is not None and found.name in ("tasks", "history")
                flag = argument if takes_words or getattr(found, "has_arguments", False) else ""
            elif flag and expanded[-1] != flag:
                if takes_words or _ASSIGNMENT.match(argument):
                    expanded.append(flag)
                else:
                    flag = ""  # a task
            expanded.append(argument)
        return super().parse_args(context, expanded)

    def _find_parameter(self, flag: str) -> click.Parameter | None:
        name = flag[:2] + flag[2:].replace("-", "_")
        return next((parameter for parameter in self.params if name in parameter.opts), None)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the options under the sections they are declared with."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def add_run_options(command: click.Command, names: Iterable[str] | None = None) -> None:
    """Add the options of a run (all, or those named) and `--config` to a command."""
    wanted = None if names is None else set(names)
    for name, default, details in list_options():
        if wanted is None or name in wanted:
            command.params.append(_build_flag(name, default, details))
    config = click.Option(
        ["-C", "--config"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="YAML file with options (`-`: standard input); command-line flags take precedence.",
    )
    config.section = "Other"  # type: ignore[attr-defined]
    command.params.append(config)


def _build_flag(name: str, default: Any, details: Option) -> click.Option:
    declared = [f"--{name}"] + ([f"-{details.short}"] if details.short else [])
    help_text = f"{details.help}{_format_default(default)}"
    if details.flag:
        option = click.Option(declared, is_flag=True, default=None, help=help_text)
    else:
        has_arguments = details.parse is parse_arguments
        more: dict[str, Any] = {"multiple": details.repeatable or has_arguments}
        if details.const is not None:
            more |= {"is_flag": False, "flag_value": str(details.const).lower()}
        if has_arguments:
            more["callback"] = _merge_arguments
        option = click.Option(
            declared,
            type=_OptionType(name, details),
            metavar=details.metavar,
            default=None,
            help=help_text,
            **more,
        )
        option.has_arguments = has_arguments  # type: ignore[attr-defined]
    option.section = details.section  # type: ignore[attr-defined]
    return option


def _merge_arguments(
    context: click.Context, parameter: click.Parameter, given: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Merge the arguments of all words and repetitions of an option; later ones take precedence."""
    return {key: value for one in given for key, value in one.items()} if given else None


def _format_default(default: Any) -> str:
    if default is None or default is False or default in ({}, []):
        return ""
    shown = ",".join(str(item) for item in default) if isinstance(default, (list, tuple)) else str(default)
    return f" [default: {shown}]"


def build_run_spec(values: dict[str, Any], config: Path | None) -> RunSpec:
    """Build the options of a run from a config file and flags; flags take precedence."""
    settings, places = _collect(values, config)
    try:
        return RunSpec.of(settings, where=str(config) if config else "", places=places)
    except AssayError as error:
        from assay.engine.planning.option_checks import find_unknown_names

        found = error.errors if isinstance(error, ErrorGroup) else (error,)
        problems = [*found, *find_unknown_names(settings)]  # all at once
        raise ErrorGroup(problems) if len(problems) > 1 else problems[0] from None


def collect_options(values: dict[str, Any], config: Path | None) -> dict[str, Any]:
    """Return the options set in a config file or by flags, without defaults; flags take precedence."""
    return _collect(values, config)[0]


def _collect(values: dict[str, Any], config: Path | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options and the place in the config file of those that come from it."""
    settings: dict[str, Any] = {}
    places: dict[str, str] = {}
    if config is not None:
        loaded, found = _read_config(config)
        settings |= {str(name).replace("-", "_"): value for name, value in loaded.items()}
        places |= {name.replace("-", "_"): place for name, place in found.items()}
    for name, value in values.items():
        if value is None or value == ():
            continue
        settings[name] = (
            [item for group in value for item in group]
            if isinstance(value, tuple) and value and isinstance(value[0], list)
            else value
        )
        places.pop(name, None)
    if context := click.get_current_context(silent=True):
        context.meta[_PLACES] = places
    return settings, places


def _refer_to_config(error: AssayError, places: Mapping[str, str]) -> None:
    """Replace the flag that an error refers to by the place of the option in the config file, if it comes from there."""
    if isinstance(error, ErrorGroup):
        for problem in error.errors:
            _refer_to_config(problem, places)
        return
    name = error.where.removeprefix("--")
    if name != error.where and name in places:
        error.where = f"{places[name]}, {name}"


def _read_config(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    from assay.engine.planning.config_files import read_yaml_with_places

    loaded, places = read_yaml_with_places(path, "config file")
    if loaded is None:
        return {}, {}
    if not isinstance(loaded, dict):
        raise InvalidOption(
            "a config file must be a mapping of options",
            where=str(path),
            hint="for example `tasks: [arc_easy]`",
        )
    return loaded, places
