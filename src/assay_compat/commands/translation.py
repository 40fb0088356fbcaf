"""Translate command lines of lm-eval and lmms-eval to `assay` and run them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from assay.core.errors import AssayError, InvalidOption
from assay.core.options.run_spec import RunSpec

__all__ = [
    "Flag",
    "SHARED_FLAGS",
    "Translation",
    "add_default_model",
    "format_help",
    "ignored_flag",
    "run_translated",
    "same_flag",
    "sink_flag",
    "switch_flag",
    "translate",
    "translate_hub_arguments",
]

Translator = Callable[[Any], "list[str] | str"]
"""Maps a value to arguments of `assay run`, or to a note why the flag has no effect."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of another harness and its translation."""

    names: tuple[str, ...]
    translator: Translator
    kind: str = "one"
    """`one` value, `many` values, an `optional` value, or a `switch` without one."""

    @property
    def key(self) -> str:
        return self.names[0].lstrip("-").replace("-", "_")


@dataclass(slots=True)
class Translation:
    """Arguments for `assay` with notes for the user."""

    arguments: list[str]
    notes: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    """The parsed flags by their original name."""

    help_text: str = ""
    """Text to print in place of a command."""


def same_flag(*names: str, kind: str = "one", to: str = "") -> Flag:
    """Return a flag with the same name in Assay, or the name `to`. Several values are joined by commas."""
    target = f"--{to}" if to else names[0]

    def words(value: Any) -> list[str]:
        if kind == "switch" or value is True:
            return [target]
        return [target, ",".join(map(str, value)) if isinstance(value, list) else str(value)]

    return Flag(names, words, kind)


def switch_flag(*names: str, to: str = "") -> Flag:
    """Return a flag like `same_flag` without a value."""
    return same_flag(*names, kind="switch", to=to)


def sink_flag(name: str, *, sink: str) -> Flag:
    """Return a flag that becomes a sink: `--wandb_args project=x` becomes `--sink wandb,project=x`."""

    def words(value: Any) -> list[str]:
        given = ",".join(value) if isinstance(value, list) else str(value)
        return ["--sink", f"{sink},{given}" if given else sink]

    return Flag((name,), words, "many")


def translate_hub_arguments(value: Any) -> list[str]:
    """Translate `hub_results_org=o,results_repo_name=r,push_results_to_hub=True` to the hub sink with repository `o/r`."""
    pairs = ",".join(value) if isinstance(value, list) else str(value)
    options = dict(pair.partition("=")[::2] for pair in pairs.split(",") if pair)
    pushed = [
        key
        for key in ("push_results_to_hub", "push_samples_to_hub")
        if options.get(key, "").lower() == "true"
    ]
    owner = options.get("hub_results_org") or options.get("hub_repo_owner") or ""
    name = options.get("results_repo_name") or options.get("details_repo_name") or "lm-eval-results"
    if not pushed or not owner:
        return []
    samples = "push_samples_to_hub" in pushed
    private = options.get("public_repo", "").lower() != "true"
    return ["--sink", f"hub,repo={owner}/{name},samples={samples},private={private}"]


def ignored_flag(*names: str, why: str, kind: str = "one") -> Flag:
    """Return a flag that has no effect; `why` is printed as a note."""
    return Flag(names, lambda value: why, kind)


def translate(program: str, flags: Iterable[Flag], arguments: Sequence[str]) -> Translation:
    """Translate a command line of another harness to arguments of `assay run`.

    Raises:
        InvalidOption: A flag is unknown, or a value is missing.
    """
    flags = list(flags)
    parser = _Parser(prog=program, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in flags:
        parser.add_argument(*flag.names, dest=flag.key, **_ARGUMENT_KINDS[flag.kind])
    parsed = vars(parser.parse_args(list(arguments)))
    translated = Translation(["run"], given=parsed)
    for flag in flags:
        if flag.key not in parsed:
            continue
        result = flag.translator(parsed[flag.key])
        if isinstance(result, str):
            translated.notes.append(f"{flag.names[0]}: {result}")
        else:
            translated.arguments += result
    return translated


def format_help(program: str, flags: Iterable[Flag], description: str) -> str:
    """Return the help text of another harness's command: its flags, and what they do in Assay."""
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about = {one.name: one.metadata["option"].help for one in fields(RunSpec)}
    for flag in flags:
        known = about.get(flag.key, "")
        text = known or _explain(flag)
        parser.add_argument(*flag.names, help=text.replace("%", "%%"), **_ARGUMENT_KINDS[flag.kind])
    return parser.format_help()


def _explain(flag: Flag) -> str:
    """Return what a flag without an option of the same name does."""
    result = flag.translator(True if flag.kind == "switch" else ["…"] if flag.kind == "many" else "…")
    if isinstance(result, str):
        return f"No effect: {result}."
    return f"The same as `{' '.join(result)}`." if result else ""


_ARGUMENT_KINDS: dict[str, dict[str, Any]] = {
    "one": {},
    "many": {"nargs": "*"},
    "optional": {"nargs": "?", "const": True},
    "switch": {"action": "store_true"},
}


class _Parser(argparse.ArgumentParser):
    """Raises Assay's error instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise InvalidOption(message, where=self.prog, hint="`assay run --help` lists the options of Assay")


SHARED_FLAGS: tuple[Flag, ...] = (
    same_flag("--batch_size", "-b"),
    ignored_flag("--max_batch_size", why="`--batch_size auto` finds the largest batch size"),
    same_flag("--device"),
    same_flag("--use_cache", "-c"),
    ignored_flag("--cache_requests", why="requests are rebuilt for each run"),
    ignored_flag(
        "--check_integrity",
        why="every run is checked before it starts; `assay check` reports details",
        kind="switch",
    ),
    same_flag("--system_instruction"),
    same_flag("--include_path"),
    ignored_flag("--write_out", "-w", why="`assay show TASK` prints the prompts", kind="switch"),
    ignored_flag("--show_config", why="`assay show TASK` prints the configuration", kind="switch"),
    sink_flag("--wandb_args", sink="wandb"),
    Flag(("--hf_hub_log_args",), translate_hub_arguments, "many"),
    switch_flag("--predict_only", "-x"),
    same_flag("--seed"),
    switch_flag("--trust_remote_code"),
)
"""Flags with the same name and meaning in lm-eval and lmms-eval."""


def run_translated(
    translate_command: Callable[[Sequence[str]], Translation],
    print_results: Callable[[Any], None] | None = None,
) -> NoReturn:
    """Translate the command line of this process, run it with Assay, and exit. `print_results` prints the run's results."""
    from assay.cli import main
    from assay.cli.app import print_error
    from assay.cli.run_output import set_results_printer

    if print_results is not None:
        set_results_printer(print_results)
    try:
        translated = translate_command(sys.argv[1:])
    except AssayError as error:
        print_error(error)
        sys.exit(error.exit_code)
    if translated.help_text:
        sys.stdout.write(translated.help_text)
        sys.exit(0)
    for note in translated.notes:
        sys.stderr.write(f"note: {note}\n")
    main(translated.arguments)
    raise SystemExit  # not reached: `main` exits


def add_default_model(translated: Translation, model: str) -> Translation:
    """Add the default model of the other harness if the command line sets none."""
    given = translated.given
    if "model" in given or ("config" in given and _config_sets_model(Path(str(given["config"])))):
        return translated
    return Translation([*translated.arguments, "--model", model], translated.notes, given)


def _config_sets_model(config: Path) -> bool:
    from assay.engine.planning.config_files import read_yaml

    options = read_yaml(config, "config file")
    return isinstance(options, dict) and "model" in options
