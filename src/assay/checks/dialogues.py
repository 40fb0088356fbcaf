"""Dialogues: whether something makes their later rounds, and something judges them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.checks.findings import Findings
from assay.checks.functions import Broken
from assay.core.specs import TaskSpec
from assay.tasks.dialogue import ROUND_ARGUMENTS, STEPS_KEY, hears_rounds, is_dialogue

__all__ = ["check_dialogue_keys"]


def check_dialogue_keys(spec: TaskSpec, broken: Broken, findings: Findings) -> None:
    """Multi-round and agentic tasks; nothing is called."""
    agentic = spec.output_type == "generate_until_agentic"
    _check_steps(spec, agentic, findings)
    if not is_dialogue(spec):
        return
    text, messages = spec.doc_to_text, None if agentic else spec.doc_to_messages
    if callable(text):
        if "doc_to_text" not in broken.places and not _hears(text):
            findings.error(
                "rounds",
                "`doc_to_text` is not told of the rounds before",
                spec.place("doc_to_text"),
                f"it must take {', '.join(ROUND_ARGUMENTS)}",
            )
    elif messages is None:
        findings.error(
            "rounds",
            f"a {spec.output_type} task needs a function as `doc_to_text`: it makes the later rounds",
            spec.place("doc_to_text"),
        )
    if callable(messages) and "doc_to_messages" not in broken.places and not _hears(messages):
        findings.warning(
            "rounds",
            "`doc_to_messages` is not told of the rounds before: with a chat model there is only one round",
            spec.place("doc_to_messages"),
            f"let it take {', '.join(ROUND_ARGUMENTS)}, or leave it out",
        )
    if not agentic and spec.process_results is None:
        findings.warning(
            "rounds",
            "without `process_results` metrics get the list of all rounds where they expect one text",
            spec.path,
            "process_results(doc, [[first, second, …]])",
        )


def _hears(function: Callable[..., Any]) -> bool:
    try:
        return hears_rounds(function)
    except (TypeError, ValueError):  # written in C: nothing to read
        return True


def _check_steps(spec: TaskSpec, agentic: bool, findings: Findings) -> None:
    given = spec.generation_kwargs.get(STEPS_KEY)
    if given is None:
        return
    where = spec.place(f"generation_kwargs.{STEPS_KEY}")
    if not agentic:
        findings.note("no-effect", f"`{STEPS_KEY}` has no effect: only agentic tasks take steps", where)
    elif not isinstance(given, int) or isinstance(given, bool) or given < 1:
        findings.error("key", f"`{STEPS_KEY}` must be a whole number above 0, not {given!r:.60}", where)
