"""Check generation settings: contradictions, repeats, token limits, and the rounds of dialogues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.checks.config_values import find_token_limits, is_number
from assay.checks.findings import Findings
from assay.checks.functions import BrokenFunctions
from assay.core.records.specs import TaskSpec
from assay.tasks.dialogues import MAX_STEPS_KEY, ROUND_ARGUMENTS, accepts_round_arguments

__all__ = ["check_dialogue_keys", "check_generation", "list_stop_texts"]


def list_stop_texts(spec: TaskSpec) -> list[str]:
    """Return the stop texts of a task."""
    until = spec.generation_kwargs.get("until")
    texts = until if isinstance(until, list) else [until]
    return [text for text in texts if isinstance(text, str) and text]


def check_generation(spec: TaskSpec, findings: Findings) -> None:
    """Check sampling, repeats and token limits; report tasks that execute model-written code."""
    if spec.unsafe_code:
        findings.note(
            "unsafe-code",
            "the task executes code written by the model",
            spec.place("unsafe_code"),
            "a run needs --confirm_run_unsafe_code",
        )
    if not spec.target_is_answer:
        findings.note(
            "target-not-an-answer",
            "the target is not a complete answer: the filters or the task code expect more than it contains",
            spec.place("metadata"),
            "`--model oracle` does not get the full score",
        )
    if not spec.output_type.generates_text:
        if spec.repeats > 1:
            findings.note(
                "repeats",
                f"`repeats` has no effect: the probabilities of a {spec.output_type} task are the same each time",
                spec.place("repeats"),
            )
        return
    _check_sampling(spec, findings)
    limits = find_token_limits(spec.generation_kwargs)
    if len(set(limits.values())) > 1:
        given = ", ".join(f"{key}: {value}" for key, value in limits.items())
        findings.note("max-tokens", f"several token limits: {given}", spec.place("generation_kwargs"))
    until = spec.generation_kwargs.get("until")
    if until == "" or (isinstance(until, list) and "" in until):
        findings.note(
            "until", "an empty string in `until` has no effect", spec.place("generation_kwargs.until")
        )


def _check_sampling(spec: TaskSpec, findings: Findings) -> None:
    settings: Mapping[str, object] = spec.generation_kwargs
    sample, given = settings.get("do_sample"), settings.get("temperature")
    temperature = float(given) if is_number(given) else None  # type: ignore[arg-type]
    where = spec.place("generation_kwargs")
    if sample is False and temperature:
        findings.note(
            "sampling", f"`temperature: {temperature}` has no effect with `do_sample: false`", where
        )
    if sample is True and temperature == 0:
        findings.note("sampling", "`do_sample: true` has no effect with `temperature: 0`", where)
    greedy = sample is False or temperature == 0 or (sample is None and temperature is None)
    if spec.repeats > 1 and greedy and not spec.output_type.is_agent:  # tools, users and servers vary anyway
        findings.warning(
            "repeats",
            f"generation is greedy, so all {spec.repeats} `repeats` give the same answer",
            spec.place("repeats"),
            "set `do_sample: true` and a `temperature` above 0",
        )


def check_dialogue_keys(spec: TaskSpec, broken: BrokenFunctions, findings: Findings) -> None:
    """Check multi-round and agentic tasks without calling their code."""
    agentic = spec.output_type.is_agentic
    _check_steps(spec, agentic, findings)
    if not spec.output_type.is_dialogue or spec.output_type.is_agent:
        return
    text, messages = spec.doc_to_text, None if agentic else spec.doc_to_messages
    if callable(text):
        if "doc_to_text" not in broken.key_paths and not _accepts_rounds(text):
            findings.error(
                "rounds",
                "`doc_to_text` does not accept the previous rounds",
                spec.place("doc_to_text"),
                f"it must accept {', '.join(ROUND_ARGUMENTS)}",
            )
    elif messages is None:
        findings.error(
            "rounds",
            f"a {spec.output_type} task needs a function as `doc_to_text` to create the later rounds",
            spec.place("doc_to_text"),
        )
    if callable(messages) and "doc_to_messages" not in broken.key_paths and not _accepts_rounds(messages):
        findings.warning(
            "rounds",
            "`doc_to_messages` does not accept the previous rounds: a chat model gets only one round",
            spec.place("doc_to_messages"),
            f"accept {', '.join(ROUND_ARGUMENTS)}, or remove it",
        )
    if not agentic and spec.process_results is None:
        findings.warning(
            "rounds",
            "without `process_results`, metrics get the list of all rounds instead of one text",
            spec.path,
            "add `process_results(doc, [[first, second, …]])`",
        )


def _accepts_rounds(function: Callable[..., Any]) -> bool:
    try:
        return accepts_round_arguments(function)
    except (TypeError, ValueError):  # a C function without a signature
        return True


def _check_steps(spec: TaskSpec, agentic: bool, findings: Findings) -> None:
    given = spec.generation_kwargs.get(MAX_STEPS_KEY)
    if given is None:
        return
    where = spec.place(f"generation_kwargs.{MAX_STEPS_KEY}")
    if not agentic:
        findings.note("no-effect", f"`{MAX_STEPS_KEY}` has no effect: only agentic tasks take steps", where)
    elif not isinstance(given, int) or isinstance(given, bool) or given < 1:
        findings.error("key", f"`{MAX_STEPS_KEY}` must be a positive integer, not {given!r:.60}", where)
