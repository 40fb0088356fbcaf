"""Settings of generating tasks that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

from assay.checks.findings import Findings
from assay.checks.keys import is_number, token_limits
from assay.core.specs import TaskSpec

__all__ = ["check_generation", "stop_texts"]


def stop_texts(spec: TaskSpec) -> list[str]:
    """Where answers end: what the task says, else what separates its examples."""
    until = spec.generation_kwargs.get("until")
    texts = until if isinstance(until, list) else [until]
    return [text for text in texts if isinstance(text, str) and text]


def check_generation(spec: TaskSpec, findings: Findings) -> None:
    """Sampling, repeats, lengths; and tasks that run what the model writes."""
    if spec.unsafe_code:
        findings.note(
            "unsafe-code",
            "the task executes code written by the model",
            spec.place("unsafe_code"),
            "a run needs --confirm_run_unsafe_code",
        )
    if not spec.output_type.startswith("generate"):
        if spec.repeats > 1:
            findings.note(
                "repeats",
                f"`repeats` has no effect: a {spec.output_type} task asks for probabilities, which stay the same",
                spec.place("repeats"),
            )
        return
    _check_sampling(spec, findings)
    limits = token_limits(spec.generation_kwargs)
    if len(set(limits.values())) > 1:
        given = ", ".join(f"{key}: {value}" for key, value in limits.items())
        findings.note(
            "max-tokens", f"several limits of the same thing: {given}", spec.place("generation_kwargs")
        )
    until = spec.generation_kwargs.get("until")
    if until == "" or (isinstance(until, list) and "" in until):
        findings.note(
            "until", "an empty text in `until` stops nothing", spec.place("generation_kwargs.until")
        )


def _check_sampling(spec: TaskSpec, findings: Findings) -> None:
    settings: Mapping[str, object] = spec.generation_kwargs
    sample, given = settings.get("do_sample"), settings.get("temperature")
    temperature = float(given) if is_number(given) else None  # type: ignore[arg-type]
    where = spec.place("generation_kwargs")
    if sample is False and temperature:
        findings.note(
            "sampling", f"`do_sample: false` makes `temperature: {temperature}` count for nothing", where
        )
    if sample is True and temperature == 0:
        findings.note("sampling", "`do_sample: true` with `temperature: 0` samples nothing", where)
    greedy = sample is False or temperature == 0 or (sample is None and temperature is None)
    if spec.repeats > 1 and greedy:
        findings.warning(
            "repeats",
            f"{spec.repeats} `repeats` of a greedy answer are {spec.repeats} times the same",
            spec.place("repeats"),
            "`do_sample: true` and a `temperature` above 0",
        )
