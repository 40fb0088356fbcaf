"""The options of a locked run: those of the lockfile, and further ones that do not change what is claimed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, InvalidOption
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import RunSpec, list_options
from assay.engine.lockfiles.contents import CONSENT_OPTIONS
from assay.engine.lockfiles.lockfile import Lockfile
from assay.engine.lockfiles.portable_paths import PortablePaths

__all__ = ["build_locked_spec", "build_updated_spec"]

_MERGED = ("model_args", "judge_args", "metadata")
_LISTS = ("tasks", "include_path")
_MODEL_LISTS = ("judge", "user")
_REMOTE_CODE = "trust_remote_code"
_PLACES = ("data_root", "decontamination_ngrams_path")


def build_locked_spec(lock: Lockfile, given: Mapping[str, Any]) -> RunSpec:
    """Return the options of a lockfile with further ones.

    Model arguments that the lockfile does not have are added: the identity of the model decides whether it is the same.

    Raises:
        InvalidOption: An option contradicts the lockfile, or allows code to run and was not given again.
    """
    options = _read_options(lock)
    affecting = {name for name, _, option in list_options() if option.affects_results}
    wanted = RunSpec.read(given)
    locked = RunSpec.read(options)
    problems: list[AssayError] = []
    for name, value in wanted.items():
        if name in _MERGED:
            problems += _check_arguments(name, locked.get(name) or {}, value)
        elif name == "tasks":
            if sorted(value) != sorted(locked["tasks"]):
                problems.append(_contradiction(name, value, locked["tasks"]))
        elif name in affecting and name not in CONSENT_OPTIONS and value != locked.get(name):
            problems.append(_contradiction(name, value, locked.get(name)))
    for name in CONSENT_OPTIONS:
        if options.get(name) and not wanted.get(name):
            problems.append(
                InvalidOption(
                    f"the lockfile needs --{name}",
                    where=f"{lock.path}, options.{name}",
                    hint=f"a lockfile cannot allow this by itself: pass --{name}",
                )
            )
        elif wanted.get(name) and not options.get(name):
            problems.append(_contradiction(name, True, False))
    for name in _MERGED:
        if (locked.get(name) or {}).get(_REMOTE_CODE) and _REMOTE_CODE not in (wanted.get(name) or {}):
            problems.append(_require(lock, name, f"{_REMOTE_CODE}=true", f".{_REMOTE_CODE}"))
    for name in _MODEL_LISTS:
        problems += [
            _require(lock, name, shlex.quote(word))
            for word in locked.get(name) or ()
            if parse_arguments(word.partition(",")[2]).get(_REMOTE_CODE) and word not in wanted.get(name, ())
        ]
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
    return _merge(lock, options, given)


def build_updated_spec(lock: Lockfile, given: Mapping[str, Any]) -> RunSpec:
    """Return the options for a new version of a lockfile: other options replace those of the lockfile."""
    return _merge(lock, _read_options(lock), given)


def _merge(lock: Lockfile, options: dict[str, Any], given: Mapping[str, Any]) -> RunSpec:
    for name, value in RunSpec.read(given).items():
        if name in _MERGED:
            options[name] = {**(options.get(name) or {}), **value}
        elif name == "include_path":
            options[name] = [*options.get(name, ()), *value]
        elif name != "mirror":
            options[name] = value
    options["mirror"] = [*_list_mirrors(lock), *RunSpec.read(given).get("mirror", ())]
    return RunSpec.of(options, where=str(lock.path))


def _list_mirrors(lock: Lockfile) -> list[str]:
    found: dict[str, None] = {}
    for task in lock.content["tasks"].values():
        dataset = task.get("dataset", {})
        for other in dataset.get("mirrors") or ():
            found[f"{dataset.get('path')}={other}"] = None
    return list(found)


def _read_options(lock: Lockfile) -> dict[str, Any]:
    """Return the options with paths from the working directory.

    Raises:
        InvalidOption: The lockfile contains an option that this version does not have, or that a lockfile cannot set.
    """
    paths = PortablePaths(lock.path.parent)
    allowed = {name for name, _, option in list_options() if option.affects_results} | {
        "include_path",
        "data_root",
    }
    options = dict(lock.content["options"])
    if unknown := sorted(set(options) - allowed):
        raise InvalidOption(
            f"a lockfile cannot set the option `{unknown[0]}`",
            where=f"{lock.path}, options",
            hint="it was written by another version of Assay, or edited",
        )
    for name in _LISTS:
        value = options.get(name)
        if value is not None:
            options[name] = [paths.to_local(word) for word in (value if isinstance(value, list) else [value])]
    for name in _PLACES:
        if options.get(name) is not None:
            options[name] = paths.to_local(options[name])
    for name in _MERGED:
        value = options.get(name)
        if isinstance(value, Mapping):
            options[name] = {key: paths.to_local(item) for key, item in value.items()}
    return {name: value for name, value in options.items() if value is not None}


def _check_arguments(name: str, locked: Mapping[str, Any], given: Mapping[str, Any]) -> list[AssayError]:
    return [
        _contradiction(f"{name} {key}", value, locked[key])
        for key, value in given.items()
        if key in locked and locked[key] != value
    ]


def _require(lock: Lockfile, name: str, value: str, key: str = "") -> InvalidOption:
    return InvalidOption(
        f"the lockfile needs --{name} {value}",
        where=f"{lock.path}, options.{name}{key}",
        hint=f"a lockfile cannot allow this by itself: pass --{name} {value}",
    )


def _contradiction(name: str, given: Any, locked: Any) -> InvalidOption:
    return InvalidOption(
        f"--{name} contradicts the lockfile: {given!r}, locked: {locked!r}",
        where=f"--{name.partition(' ')[0]}",
        hint="remove the option, or write another lockfile with `assay lock --update`",
    )
