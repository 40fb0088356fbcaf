"""Read sweep files: each combination of model and setting is a run of the same tasks.

    models:
      - embedded
      - {name: small, model: hf, model_args: {pretrained: ./small}}
    tasks: [gsm8k, arc_easy]
    settings:
      - num_fewshot: 0
      - {name: five shots, num_fewshot: 5}
    options: {limit: 100}

A sweep remembers nothing of its own. Each of its runs is a run like any other, named by what it is, so that to go on with
a sweep is to ask for it once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, InvalidOption, UnknownName
from assay.core.options.run_spec import RunSpec, list_options
from assay.engine.planning.config_files import read_yaml

__all__ = ["Sweep", "SweepRun", "read_sweep"]

_KEYS = ("models", "tasks", "settings", "options")
_SHARED_OPTIONS = ("output_path",)
"""Options that all runs of a sweep share."""

_IDENTIFYING_ARGUMENTS = ("pretrained", "model", "model_version", "model_name", "base_url")
"""Arguments that identify a model of an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """One run of a sweep."""

    model: str
    """The name of its model in the table."""

    setting: str
    """The name of its setting; empty if there is only one."""

    spec: RunSpec
    options: Mapping[str, Any]
    """The options `spec` was made from, without defaults."""

    @property
    def name(self) -> str:
        """`small, five shots`."""
        return f"{self.model}, {self.setting}" if self.setting else self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The content of a sweep file."""

    path: Path
    runs: tuple[SweepRun, ...]

    @property
    def name(self) -> str:
        """The file name without its extension."""
        return self.path.stem


def read_sweep(path: str | Path, given: Mapping[str, Any] | None = None) -> Sweep:
    """Read the runs of a sweep file.

    Args:
        path: The YAML file.
        given: Options for all runs, which override the file.

    Raises:
        ErrorGroup: All errors in the file.
    """
    path = Path(path).expanduser()
    said = _require_mapping(read_yaml(path, "sweep"), str(path))
    if unknown := [key for key in said if key not in _KEYS]:
        raise UnknownName(
            f"a sweep has no key `{unknown[0]}`",
            where=str(path),
            hint=f"its keys are {', '.join(_KEYS)}; options of all runs go under `options`",
        )
    models = [
        _parse_model(entry, f"{path}, models[{at}]")
        for at, entry in enumerate(_get_list(said, "models", path))
    ]
    if not models:
        raise InvalidOption("a sweep needs models", where=str(path), hint="for instance `models: [embedded]`")
    settings = [
        _parse_entry(entry, f"{path}, settings[{at}]")
        for at, entry in enumerate(_get_list(said, "settings", path))
    ]
    shared = _require_mapping(said.get("options") or {}, f"{path}, options")
    if said.get("tasks"):
        shared = {**shared, "tasks": said["tasks"]}
    return Sweep(path=path, runs=_combine(path, shared, models, settings or [("", {})], given or {}))


def _combine(
    path: Path,
    shared: Mapping[str, Any],
    models: Sequence[tuple[str, dict[str, Any]]],
    settings: Sequence[tuple[str, dict[str, Any]]],
    given: Mapping[str, Any],
) -> tuple[SweepRun, ...]:
    """Combine every model with every setting; report all errors at once."""
    _check_names(path, "models", [name for name, _ in models])
    _check_names(path, "settings", [name for name, _ in settings])
    cells, problems = [], []
    for model, of_model in models:
        for setting, of_setting in settings:
            options = {**shared, **of_model, **of_setting, **given}
            for key in ("model_args", "gen_kwargs", "metadata"):  # the setting extends the model's arguments
                options = _merge_arguments(key, options, [shared, of_model, of_setting, given])
            name = f"{model}, {setting}" if setting else model
            try:
                spec = RunSpec.of(options)
            except AssayError as error:
                error.where = f"{path}, {name}{f': {error.where}' if error.where else ''}"
                problems.append(error)
                continue
            cells.append(SweepRun(model=model, setting=setting, spec=spec, options=options))
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(_deduplicate(problems))
    return tuple(cells)


def _merge_arguments(key: str, options: dict[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge arguments given as mappings; a string replaces earlier ones."""
    held = [part[key] for part in parts if key in part]
    if len(held) < 2 or not all(isinstance(value, Mapping) for value in held):
        return options
    return {**options, key: {name: value for part in held for name, value in part.items()}}


def _deduplicate(problems: Sequence[AssayError]) -> list[AssayError]:
    """Report each error once, even if several runs have it."""
    return list({(error.what, error.hint): error for error in problems}.values())


def _check_names(path: Path, key: str, names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidOption(
            f"two {key} are called `{twice[0]}`",
            where=f"{path}, {key}",
            hint="give each a `name`",
        )


def _parse_model(entry: Any, where: str) -> tuple[str, dict[str, Any]]:
    """Parse a model: its name, or its options."""
    if isinstance(entry, str):
        return entry, {"model": entry}
    name, options = _parse_entry(entry, where, needs_name=False)
    if "model" not in options:
        raise InvalidOption("the model is missing", where=where, hint="for instance `model: hf`")
    return name or _name_model(options), options


def _name_model(options: Mapping[str, Any]) -> str:
    """Name a model that has no `name`."""
    arguments = options.get("model_args")
    telling = (
        [str(arguments[key]) for key in _IDENTIFYING_ARGUMENTS if key in arguments]
        if isinstance(arguments, Mapping)
        else []
    )
    return f"{options['model']} {telling[0].rstrip('/').split('/')[-1]}" if telling else str(options["model"])


def _parse_entry(entry: Any, where: str, *, needs_name: bool = True) -> tuple[str, dict[str, Any]]:
    """Parse the name and the options of a model or a setting."""
    options = {str(key).replace("-", "_"): value for key, value in _require_mapping(entry, where).items()}
    name = str(options.pop("name", "") or "")
    known = {option for option, _, _ in list_options()} - set(_SHARED_OPTIONS)
    for key in options:
        if key in _SHARED_OPTIONS:
            raise InvalidOption(
                f"`{key}` is the same for all runs of a sweep",
                where=where,
                hint=f"`assay sweep FILE --{key} …`",
            )
        if key not in known:
            raise UnknownName.of("option", key, sorted(known), where=where, ls="options")
    if not name and needs_name:
        name = ", ".join(f"{key}={_shorten(value)}" for key, value in options.items()) or "as it is"
    return name, options


def _shorten(value: Any) -> str:
    text = (
        ",".join(f"{key}={held}" for key, held in value.items()) if isinstance(value, Mapping) else str(value)
    )
    return text if len(text) <= 40 else f"{text[:39]}…"


def _get_list(said: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    value = said.get(key) or []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise InvalidOption(
            f"`{key}` is not a list",
            where=f"{path}, {key}",
            hint="write one entry per line, each with a dash",
        )
    return value


def _require_mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidOption(
            f"expected keys and values, not {value!r}", where=where, hint="for instance `limit: 100`"
        )
    return value
