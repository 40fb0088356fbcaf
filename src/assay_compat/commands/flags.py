"""Flags of another harness and what they are here: the same, another flag, nothing, or something Assay will not do."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from assay.core.errors import BadOption

__all__ = [
    "IN_BOTH",
    "Flag",
    "Translated",
    "hub_sink",
    "same",
    "switch",
    "to_sink",
    "translate",
    "without_effect",
]

Meaning = Callable[[Any], "list[str] | str"]
"""From a value to words of `assay run`; or to a remark why there are none."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag."""

    names: tuple[str, ...]
    meaning: Meaning
    kind: str = "one"
    """`one` value, `many` values, an `optional` value, or a `switch` without one."""

    @property
    def key(self) -> str:
        return self.names[0].lstrip("-").replace("-", "_")


@dataclass(slots=True)
class Translated:
    """A command line for `assay`, and what has to be said about it."""

    words: list[str]
    remarks: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    """Every flag that was given, by its name there."""


def same(*names: str, kind: str = "one", to: str = "") -> Flag:
    """A flag that is called the same here, or `to`. Several values become one, with commas."""
    target = f"--{to}" if to else names[0]

    def words(value: Any) -> list[str]:
        if kind == "switch" or value is True:
            return [target]
        return [target, ",".join(map(str, value)) if isinstance(value, list) else str(value)]

    return Flag(names, words, kind)


def switch(*names: str, to: str = "") -> Flag:
    """As `same`, without a value."""
    return same(*names, kind="switch", to=to)


def to_sink(name: str, *, sink: str) -> Flag:
    """Arguments of a service a run is told to: `--wandb_args project=x` is `--sink wandb,project=x`."""

    def words(value: Any) -> list[str]:
        given = ",".join(value) if isinstance(value, list) else str(value)
        return ["--sink", f"{sink},{given}" if given else sink]

    return Flag((name,), words, "many")


def hub_sink(value: Any) -> list[str]:
    """`hub_results_org=o,results_repo_name=r,push_results_to_hub=True` is the repository `o/r`."""
    pairs = ",".join(value) if isinstance(value, list) else str(value)
    said = dict(pair.partition("=")[::2] for pair in pairs.split(",") if pair)
    pushed = [
        key for key in ("push_results_to_hub", "push_samples_to_hub") if said.get(key, "").lower() == "true"
    ]
    owner = said.get("hub_results_org") or said.get("hub_repo_owner") or ""
    name = said.get("results_repo_name") or said.get("details_repo_name") or "lm-eval-results"
    if not pushed or not owner:
        return []
    samples = "push_samples_to_hub" in pushed
    private = said.get("public_repo", "").lower() != "true"
    return ["--sink", f"hub,repo={owner}/{name},samples={samples},private={private}"]


def without_effect(*names: str, why: str, kind: str = "one") -> Flag:
    """A flag that is taken and does nothing, because there is nothing to do; what is said about it."""
    return Flag(names, lambda value: why, kind)


def translate(program: str, flags: Iterable[Flag], arguments: Sequence[str]) -> Translated:
    """Words for `assay run` from a command line of another harness.

    Raises:
        BadOption: A flag nobody knows, or a value that is missing.
    """
    flags = list(flags)
    parser = _Parser(prog=program, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in flags:
        parser.add_argument(*flag.names, dest=flag.key, **_SHAPES[flag.kind])
    parsed = vars(parser.parse_args(list(arguments)))
    translated = Translated(["run"], given=parsed)
    for flag in flags:
        if flag.key not in parsed:
            continue
        meant = flag.meaning(parsed[flag.key])
        if isinstance(meant, str):
            translated.remarks.append(f"{flag.names[0]}: {meant}")
        else:
            translated.words += meant
    return translated


_SHAPES: dict[str, dict[str, Any]] = {
    "one": {},
    "many": {"nargs": "*"},
    "optional": {"nargs": "?", "const": True},
    "switch": {"action": "store_true"},
}


class _Parser(argparse.ArgumentParser):
    """Complains as Assay does."""

    def error(self, message: str) -> NoReturn:
        raise BadOption(message, where=self.prog, hint="`assay run --help` shows what Assay takes")


IN_BOTH: tuple[Flag, ...] = (
    same("--batch_size", "-b"),
    without_effect("--max_batch_size", why="`--batch_size auto` finds what fits by itself"),
    same("--device"),
    same("--use_cache", "-c"),
    without_effect("--cache_requests", why="requests are made anew in no time; nothing is kept"),
    without_effect(
        "--check_integrity",
        why="every run is checked before it starts; `assay check` says more",
        kind="switch",
    ),
    same("--system_instruction"),
    same("--include_path"),
    without_effect("--write_out", "-w", why="`assay show TASK` prints the prompts", kind="switch"),
    without_effect("--show_config", why="`assay show TASK` prints the configuration", kind="switch"),
    to_sink("--wandb_args", sink="wandb"),
    Flag(("--hf_hub_log_args",), hub_sink, "many"),
    switch("--predict_only", "-x"),
    same("--seed"),
    switch("--trust_remote_code"),
)
"""What lm-eval and lmms-eval call by the same name and mean the same by."""
