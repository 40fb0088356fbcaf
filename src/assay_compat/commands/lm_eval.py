"""The commands `lm-eval`, `lm_eval` and `python -m lm_eval`, run by Assay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from assay.core.errors import InvalidOption
from assay_compat.commands.translation import (
    SHARED_FLAGS,
    Flag,
    Translation,
    add_default_model,
    ignored_flag,
    run_translated,
    same_flag,
    sink_flag,
    switch_flag,
    translate,
)

__all__ = ["FLAGS", "main", "translate_command"]

FLAGS: tuple[Flag, ...] = (
    same_flag("--config", "-C"),
    same_flag("--tasks", "-t", kind="many"),
    same_flag("--model", "-M"),
    same_flag("--model_args", "-a", kind="many"),
    same_flag("--apply_chat_template", kind="optional"),
    same_flag("--limit", "-L"),
    same_flag("--num_fewshot", "-f"),
    same_flag("--gen_kwargs", kind="many"),
    same_flag("--output_path", "-o"),
    switch_flag("--log_samples", "-s"),
    same_flag("--samples", "-E"),
    same_flag("--fewshot_as_multiturn", kind="optional"),
    same_flag("--verbosity", "-v"),
    ignored_flag("--wandb_config_args", why="the options of the run are logged as config", kind="many"),
    sink_flag("--trackio_args", sink="trackio"),
    switch_flag("--confirm_run_unsafe_code"),
    same_flag("--metadata"),
    *SHARED_FLAGS,
)

_LISTINGS = {"list": "tasks", "list_groups": "groups", "list_subtasks": "tasks", "list_tags": "tags"}


def main() -> NoReturn:
    """Run the command line of this process."""
    run_translated(translate_command)


def translate_command(arguments: Sequence[str]) -> Translation:
    """Translate a command line of lm-eval to `assay`."""
    words = list(arguments)
    first = words[0] if words else ""
    if first == "ls":
        return Translation(["ls", *("tasks" if word == "subtasks" else word for word in words[1:])])
    if first == "validate":
        return _translate_validate(words[1:])
    if first == "run":
        words = words[1:]
    if {"-h", "--help"} & set(words):
        return Translation(["run", "--help"])
    translated = translate("lm_eval", FLAGS, words)
    tasks = translated.given.get("tasks")
    if tasks and tasks[0] in _LISTINGS:
        return Translation(["ls", _LISTINGS[tasks[0]]])
    return add_default_model(translated, "hf")


def _translate_validate(words: list[str]) -> Translation:
    """Translate `validate --tasks a,b` to `assay check a b`."""
    given = translate(
        "lm_eval validate", [same_flag("--tasks", "-t"), same_flag("--include_path")], words
    ).given
    if "tasks" not in given:
        raise InvalidOption(
            "missing option: --tasks", where="lm_eval validate", hint="pass --tasks NAME,NAME"
        )
    folder = ["--include_path", given["include_path"]] if "include_path" in given else []
    return Translation(["check", *given["tasks"].split(","), *folder])
