"""`lmms-eval …` and `python -m lmms_eval …` on Assay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from assay.core.errors import BadOption
from assay_compat.commands.calling import enter, with_model
from assay_compat.commands.flags import (
    IN_BOTH,
    Flag,
    Translated,
    same,
    switch,
    translate,
    without_effect,
)

__all__ = ["FLAGS", "main", "words_for"]

_POWER = "`assay power` plans how many documents a difference takes"


def _limit(value: str) -> list[str]:
    return [] if value.strip() in ("-1", "-1.0") else ["--limit", value]


FLAGS: tuple[Flag, ...] = (
    same("--config"),
    same("--model"),
    same("--tasks"),
    same("--model_args"),
    without_effect("--launcher_args", why="`--replicas N` runs copies of a model side by side"),
    same("--num_fewshot"),
    same("--output_path"),
    Flag(("--limit",), _limit),
    same("--offset"),
    same("--repeats", "-n", "--num_samples"),
    switch("--log_samples"),
    without_effect("--wandb_log_samples", why="`assay view` shows documents", kind="switch"),
    without_effect("--swanlab_log_samples", why="there is no sink of that name", kind="switch"),
    without_effect("--log_samples_suffix", why="files are named by the run and the date"),
    switch("--apply_chat_template"),
    switch("--fewshot_as_multiturn"),
    same("--gen_kwargs"),
    same("--reasoning_tags"),
    same("--verbosity"),
    without_effect("--swanlab_args", why="there is no sink of that name"),
    without_effect("--timezone", why="times are kept with their zone"),
    switch("--process_with_media"),
    without_effect(
        "--process_docs_parallel", "--process-docs-parallel", why="documents are read as they are needed"
    ),
    same("--agentic_trace_mode"),
    without_effect(
        "--force_simple", why="which form of a prompt a model gets is told by the model", kind="switch"
    ),
    without_effect("--baseline", why="`assay compare` compares two runs, or a run and a file of samples"),
    Flag(("--max_tokens",), lambda value: ["--gen_kwargs", f"max_new_tokens={value}"]),
    without_effect("--power_analysis", "--power-analysis", why=_POWER, kind="switch"),
    without_effect("--effect_size", "--effect-size", why=_POWER),
    without_effect("--alpha", why=_POWER),
    without_effect("--power", why=_POWER),
    without_effect("--correlation", why=_POWER),
    without_effect("--std_a", "--std-a", why=_POWER),
    without_effect("--std_b", "--std-b", why=_POWER),
    *IN_BOTH,
)


def main() -> NoReturn:
    """The command."""
    enter(words_for)


def words_for(arguments: Sequence[str]) -> Translated:
    """What a command line of lmms-eval is for `assay`."""
    words = list(arguments)
    match words[:1]:
        case ["tasks"]:
            return Translated(
                ["ls", "groups" if "groups" in words[1:] else "tags" if "tags" in words[1:] else "tasks"]
            )
        case ["models"]:
            return Translated(["ls", "models"])
        case ["version"]:
            return Translated(["--version"])
        case ["power"]:
            return Translated(["power", "--help"], ["its arguments are others than lmms-eval's"])
        case ["eval"]:
            words = words[1:]
        case [first] if not first.startswith("-"):
            raise BadOption(
                f"`lmms-eval {first}` is not offered", hint="`assay --help` shows what Assay does"
            )
    if not words or {"-h", "--help"} & set(words):
        return Translated(["run", "--help"])
    translated = translate("lmms_eval", FLAGS, words)
    listed = str(translated.given.get("tasks", ""))
    if listed in ("list", "list_groups", "list_tags", "list_subtasks"):
        return Translated(["ls", {"list_groups": "groups", "list_tags": "tags"}.get(listed, "tasks")])
    return _with_own_tasks(with_model(translated, "hf"))


def _with_own_tasks(translated: Translated) -> Translated:
    """In a checkout, or a folder that has the same shape, the tasks there are found as well."""
    if not (Path("lmms_eval") / "tasks").is_dir():
        return translated
    return Translated([*translated.words, "--include_path", "."], translated.remarks, translated.given)
