"""The commands `lmms-eval` and `python -m lmms_eval`, run by Assay."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
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
    switch_flag,
    translate,
)

__all__ = ["FLAGS", "main", "print_results", "print_table", "translate_command", "write_results"]

_POWER_HINT = "use `assay power` for power analysis"


def _translate_limit(value: str) -> list[str]:
    return [] if value.strip() in ("-1", "-1.0") else ["--limit", value]


_DESCRIPTION = """Evaluate a model on tasks. Assay runs the command.

commands:
  lmms_eval eval [OPTIONS]              evaluate (the default command)
  lmms_eval tasks [list|groups|tags]    list names
  lmms_eval models                      list models
  lmms_eval serve [--host H] [--port N] start the evaluation server
  lmms_eval version                     show the version"""

FLAGS: tuple[Flag, ...] = (
    same_flag("--config"),
    same_flag("--model"),
    same_flag("--tasks"),
    same_flag("--model_args"),
    ignored_flag("--launcher_args", why="use `--replicas N` to run several copies of a model"),
    same_flag("--num_fewshot"),
    same_flag("--output_path"),
    Flag(("--limit",), _translate_limit),
    same_flag("--offset"),
    same_flag("--repeats", "-n", "--num_samples"),
    switch_flag("--log_samples"),
    ignored_flag("--wandb_log_samples", why="`assay view` shows documents", kind="switch"),
    ignored_flag("--swanlab_log_samples", why="Assay has no SwanLab sink", kind="switch"),
    ignored_flag("--log_samples_suffix", why="file names contain the run and the date"),
    switch_flag("--apply_chat_template"),
    switch_flag("--fewshot_as_multiturn"),
    same_flag("--gen_kwargs"),
    same_flag("--reasoning_tags"),
    same_flag("--verbosity"),
    ignored_flag("--swanlab_args", why="Assay has no SwanLab sink"),
    ignored_flag("--timezone", why="times are stored with their time zone"),
    switch_flag("--process_with_media"),
    ignored_flag(
        "--process_docs_parallel", "--process-docs-parallel", why="documents are read when they are needed"
    ),
    same_flag("--agentic_trace_mode"),
    ignored_flag("--force_simple", why="the model decides the form of its prompts", kind="switch"),
    ignored_flag("--baseline", why="use `assay compare` to compare two runs, or a run and a samples file"),
    Flag(("--max_tokens",), lambda value: ["--gen_kwargs", f"max_new_tokens={value}"]),
    ignored_flag("--power_analysis", "--power-analysis", why=_POWER_HINT, kind="switch"),
    ignored_flag("--effect_size", "--effect-size", why=_POWER_HINT),
    ignored_flag("--alpha", why=_POWER_HINT),
    ignored_flag("--power", why=_POWER_HINT),
    ignored_flag("--correlation", why=_POWER_HINT),
    ignored_flag("--std_a", "--std-a", why=_POWER_HINT),
    ignored_flag("--std_b", "--std-b", why=_POWER_HINT),
    *SHARED_FLAGS,
)


def main() -> NoReturn:
    """Run the command line of this process."""
    if sys.argv[1:2] == ["serve"]:
        from assay_compat.evaluation_server.launch import main as serve

        serve(sys.argv[2:])
    run_translated(translate_command, print_results)


def print_results(run: Any) -> None:
    """Print lmms-eval's table, and write the results under lmms-eval's file names if there is an output path."""
    print_table(run)
    folder = run.facts["spec"].get("output_path")
    if folder:
        results, _ = write_results(run, Path(folder))
        sys.stdout.write(f"results   {results}\n")


def print_table(run: Any) -> None:
    """Print the results of a run as lmms-eval does."""
    from assay_compat.commands import lm_eval

    lm_eval.print_results(run)


def write_results(run: Any, folder: Path) -> tuple[Path, list[Path]]:
    """Write the results of a run under lmms-eval's file names, and the samples if the run logs them; return the files."""
    from assay.viewer.exports.lmms_eval import write_lmms_eval

    results, *samples = write_lmms_eval(run, list(run.tasks), folder)
    if run.facts["spec"].get("log_samples"):
        return results, samples
    for file in samples:
        file.unlink()
    return results, []


def translate_command(arguments: Sequence[str]) -> Translation:
    """Translate a command line of lmms-eval to `assay`."""
    words = list(arguments)
    match words[:1]:
        case ["tasks"]:
            return Translation(
                ["ls", "groups" if "groups" in words[1:] else "tags" if "tags" in words[1:] else "tasks"]
            )
        case ["models"]:
            return Translation(["ls", "models"])
        case ["version"]:
            return Translation(["--version"])
        case ["power"]:
            return Translation(["power", "--help"], ["`assay power` has other arguments than lmms-eval"])
        case ["eval"]:
            words = words[1:]
        case [first] if not first.startswith("-"):
            raise InvalidOption(
                f"unsupported command `lmms-eval {first}`", hint="`assay --help` lists the commands of Assay"
            )
    if not words or {"-h", "--help"} & set(words):
        return Translation([], help_text=format_help("lmms_eval eval", FLAGS, _DESCRIPTION))
    translated = translate("lmms_eval", FLAGS, words)
    listed = str(translated.given.get("tasks", ""))
    if listed in ("list", "list_groups", "list_tags", "list_subtasks"):
        return Translation(["ls", {"list_groups": "groups", "list_tags": "tags"}.get(listed, "tasks")])
    return _add_local_tasks(add_default_model(translated, "hf"))


def _add_local_tasks(translated: Translation) -> Translation:
    """Add the tasks of the current folder if it is an lmms-eval checkout or has the same layout."""
    if not (Path("lmms_eval") / "tasks").is_dir():
        return translated
    return Translation([*translated.arguments, "--include_path", "."], translated.notes, translated.given)
