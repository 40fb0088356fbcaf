"""`lm-eval …`, `lm_eval …` and `python -m lm_eval …` on Assay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from assay.core.errors import BadOption
from assay_compat.commands.calling import enter, with_model
from assay_compat.commands.flags import (
    IN_BOTH,
    Flag,
    Translated,
    same,
    switch,
    to_sink,
    translate,
    without_effect,
)

__all__ = ["FLAGS", "main", "words_for"]

FLAGS: tuple[Flag, ...] = (
    same("--config", "-C"),
    same("--tasks", "-t", kind="many"),
    same("--model", "-M"),
    same("--model_args", "-a", kind="many"),
    same("--apply_chat_template", kind="optional"),
    same("--limit", "-L"),
    same("--num_fewshot", "-f"),
    same("--gen_kwargs", kind="many"),
    same("--output_path", "-o"),
    switch("--log_samples", "-s"),
    same("--samples", "-E"),
    same("--fewshot_as_multiturn", kind="optional"),
    same("--verbosity", "-v"),
    without_effect("--wandb_config_args", why="the options of a run are its config there", kind="many"),
    to_sink("--trackio_args", sink="trackio"),
    switch("--confirm_run_unsafe_code"),
    same("--metadata"),
    *IN_BOTH,
)

_LISTS = {"list": "tasks", "list_groups": "groups", "list_subtasks": "tasks", "list_tags": "tags"}


def main() -> NoReturn:
    """The command."""
    enter(words_for)


def words_for(arguments: Sequence[str]) -> Translated:
    """What a command line of lm-eval is for `assay`."""
    words = list(arguments)
    first = words[0] if words else ""
    if first == "ls":
        return Translated(["ls", *("tasks" if word == "subtasks" else word for word in words[1:])])
    if first == "validate":
        return _validated(words[1:])
    if first == "run":
        words = words[1:]
    if {"-h", "--help"} & set(words):
        return Translated(["run", "--help"])
    translated = translate("lm_eval", FLAGS, words)
    tasks = translated.given.get("tasks")
    if tasks and tasks[0] in _LISTS:
        return Translated(["ls", _LISTS[tasks[0]]])
    return with_model(translated, "hf")


def _validated(words: list[str]) -> Translated:
    """`validate --tasks a,b` is `assay check a b`."""
    given = translate("lm_eval validate", [same("--tasks", "-t"), same("--include_path")], words).given
    if "tasks" not in given:
        raise BadOption("no task was named", where="lm_eval validate", hint="--tasks NAME,NAME")
    folder = ["--include_path", given["include_path"]] if "include_path" in given else []
    return Translated(["check", *given["tasks"].split(","), *folder])
