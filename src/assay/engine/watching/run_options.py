"""The options of a checkpoint's run: those of the watch, with the checkpoint in the model arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.fingerprints import digest_json
from assay.core.installation import assay_version
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import RunSpec
from assay.engine.watching.checkpoints import Checkpoint

__all__ = ["build_run_options", "compute_watch_digest", "complete_watch_options"]

_PLACEHOLDERS = ("{checkpoint}", "{name}", "{step}")
_DEFAULT_MODEL = "hf"
_REFUSED_OPTIONS = {
    "vary": "the curve and its alarms need one prompt per document",
    "budget": "the curve and its alarms need documents that count equally",
    "history": "the curve and its alarms need documents that count equally",
    "subset": "the curve and its alarms need documents that count equally",
    "stop_when": "the curve and its alarms need the same documents for every checkpoint",
}
"""Options of runs that a watch does not support, and why."""


def complete_watch_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a watch with the default model: `hf` with `pretrained={checkpoint}`.

    >>> complete_watch_options({"tasks": ["a"], "model_args": "dtype=float32"})["model_args"]
    {'pretrained': '{checkpoint}', 'dtype': 'float32'}

    Raises:
        InvalidOption: The model arguments do not say where the checkpoint goes, or a watch does not support an option.
    """
    for name, reason in _REFUSED_OPTIONS.items():
        if given.get(name):
            raise InvalidOption(
                f"a watch does not support `{name}`: {reason}",
                where=f"--{name}",
                hint="leave it out; --limit N evaluates fewer documents"
                if name != "vary"
                else "leave it out; vary the prompts of the best checkpoint with `assay run`",
            )
    options = {"model": _DEFAULT_MODEL, **given}
    stated = options.get("model_args") or {}
    arguments = parse_arguments(stated) if isinstance(stated, str) else dict(stated)
    if not _has_placeholder(arguments):
        if "pretrained" in arguments or options["model"] != _DEFAULT_MODEL:
            raise InvalidOption(
                "the model arguments do not contain the checkpoint",
                where="--model_args",
                hint="for example `--model_args pretrained={checkpoint}`; `{name}` and `{step}` are its name and its step",
            )
        arguments = {"pretrained": "{checkpoint}", **arguments}
    return {**options, "model_args": arguments}


def build_run_options(
    options: Mapping[str, Any], checkpoint: Checkpoint, *, refresh: bool = False
) -> dict[str, Any]:
    """Return the options of the run of one checkpoint. `refresh`: ignore stored responses."""
    step = "" if checkpoint.step is None else f"{checkpoint.step:.15g}"
    values = {"{checkpoint}": str(checkpoint.path), "{name}": checkpoint.name, "{step}": step}
    name = checkpoint.name.replace("/", "-")
    shown = f"{options['name']}-{name}" if options.get("name") else name
    built = {**options, "name": shown, "model_args": _fill_in(options["model_args"], values)}
    return {**built, "refresh": True} if refresh else built


def compute_watch_digest(options: Mapping[str, Any], checkpoints: str) -> str:
    """Return a digest of what a watch evaluates: the same for the same command, whatever its order or hooks.

    Assay's version is part of it, as of the ids of runs: a corrected metric must change the numbers.
    """
    shape = RunSpec.of({**options, "name": None, "output_path": None}).shape()
    return digest_json({"options": shape, "checkpoints": checkpoints, "assay": assay_version()})[:8]


def _has_placeholder(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_placeholder(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_placeholder(item) for item in value)
    return isinstance(value, str) and any(one in value for one in _PLACEHOLDERS)


def _fill_in(value: Any, values: Mapping[str, str]) -> Any:
    """Replace the placeholders in all strings of nested options."""
    if isinstance(value, Mapping):
        return {key: _fill_in(item, values) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fill_in(item, values) for item in value]
    if isinstance(value, str):
        for placeholder, text in values.items():
            value = value.replace(placeholder, text)
    return value
