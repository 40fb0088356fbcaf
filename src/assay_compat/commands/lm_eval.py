"""The commands `lm-eval`, `lm_eval` and `python -m lm_eval`, run by Assay."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from assay.core.errors import InvalidOption
from assay_compat.commands.translation import (
    SHARED_FLAGS,
    Flag,
    Translation,
    add_default_model,
    format_help,
    ignored_flag,
    run_translated,
    same_flag,
    sink_flag,
    switch_flag,
    translate,
)

__all__ = ["FLAGS", "main", "print_results", "translate_command"]

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

_DESCRIPTION = """Evaluate a model on tasks. Assay runs the command.

commands:
  lm_eval run [OPTIONS]          evaluate (the default command)
  lm_eval ls [tasks|groups|tags] list names
  lm_eval validate --tasks NAMES check task files"""

_LISTINGS = {"list": "tasks", "list_groups": "groups", "list_subtasks": "tasks", "list_tags": "tags"}


def main() -> NoReturn:
    """Run the command line of this process."""
    run_translated(translate_command, print_results)


def print_results(run: Any) -> None:
    """Print the results of a run as lm-eval does: one table of tasks and one of groups."""
    from assay.viewer.exports.lm_eval import build_results
    from assay_compat.commands.results_table import make_table

    results = build_results(run)
    shown = run.facts["spec"]
    arguments = ",".join(f"{key}={value}" for key, value in (shown.get("model_args") or {}).items())
    sys.stdout.write(
        f"{shown['model']} ({arguments}), gen_kwargs: ({shown.get('gen_kwargs') or None}), limit: {shown.get('limit')},"
        f" num_fewshot: {shown.get('num_fewshot')}, batch_size: {shown.get('batch_size')}\n"
    )
    sys.stdout.write(make_table(results) + "\n")
    if results.get("groups"):
        sys.stdout.write(make_table(results, "groups") + "\n")


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
        return Translation([], help_text=format_help("lm_eval run", FLAGS, _DESCRIPTION))
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
