"""What the first documents want as an answer: possible, unambiguous, and not cut off."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.checks.findings import Findings, Severity
from assay.checks.generation import stop_texts
from assay.checks.keys import token_limits
from assay.core.requests import Request
from assay.core.specs import TaskSpec
from assay.tasks.dialogue import is_dialogue

__all__ = ["Answers", "check_answers"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One document: what is asked and what is wanted."""

    index: int
    prompt: str
    has_media: bool
    question: Any
    target: Any
    choices: Sequence[Any] | None

    def wanted(self) -> Iterator[str]:
        """The texts of which each would be right, where they are texts."""
        targets = self.target if isinstance(self.target, (list, tuple)) else [self.target]
        for target in targets:
            if self.choices is not None and _is_place(target):
                if 0 <= target < len(self.choices):
                    yield str(self.choices[target])
            elif isinstance(target, (str, int, float)) and not isinstance(target, bool):
                yield str(target)


@dataclass(slots=True)
class Answers:
    """The documents that could be rendered."""

    spec: TaskSpec
    rendered: list[Rendered] = field(default_factory=list)

    def add(
        self,
        index: int,
        requests: Sequence[Request],
        question: Any,
        target: Any,
        choices: Sequence[Any] | None,
    ) -> None:
        """Take a document in."""
        prompt = requests[0].prompt if requests else None
        self.rendered.append(
            Rendered(
                index,
                prompt.text if prompt else "",
                bool(prompt and prompt.media),
                question,
                target,
                choices,
            )
        )


def check_answers(found: Answers, findings: Findings) -> None:
    """Everything that can be said of prompts, choices and targets without a model."""
    spec = found.spec
    if not found.rendered or spec.output_type == "loglikelihood_rolling":
        return
    _check_prompts(found, findings)
    if spec.doc_to_choice is not None:
        _check_choices(found, findings)
    if spec.output_type == "multiple_choice":
        _check_spaces(found, findings)
    if spec.output_type.startswith("generate") and not is_dialogue(spec):
        _check_stops(found, findings)
        _check_length(found, findings)


def _some(documents: list[int]) -> str:
    """`document 3`, `documents 0, 1, 2`."""
    names = ", ".join(str(index) for index in documents)
    return f"document{'' if len(documents) == 1 else 's'} {names}"


def _check_prompts(found: Answers, findings: Findings) -> None:
    empty = [one.index for one in found.rendered if not one.prompt.strip() and not one.has_media]
    if empty:
        generates = found.spec.output_type.startswith("generate")
        findings.add(
            "warning" if generates else "note",
            "empty-prompt",
            f"the prompt is empty: {_some(empty)}",
            found.spec.place("doc_to_text"),
        )


def _check_choices(found: Answers, findings: Findings) -> None:
    outside = [one.index for one in found.rendered if not _is_among(one)]
    if outside:
        first = next(one for one in found.rendered if one.index == outside[0])
        choices = ", ".join(f"{choice!r:.30}" for choice in list(first.choices or ())[:6])
        findings.add(
            "error" if len(outside) == len(found.rendered) else "warning",
            "target-not-a-choice",
            f"the target is not among the choices: {_some(outside)}",
            found.spec.place("doc_to_target"),
            f"document {first.index} wants {_gold(first)!r:.40} of [{choices}]",
        )
    repeated = [
        one.index
        for one in found.rendered
        if one.choices and len(set(map(str, one.choices))) < len(one.choices)
    ]
    if repeated:
        findings.warning(
            "repeated-choice", f"a choice comes twice: {_some(repeated)}", found.spec.place("doc_to_choice")
        )
    single = [one.index for one in found.rendered if one.choices is not None and len(one.choices) == 1]
    if single and found.spec.output_type == "multiple_choice":
        findings.warning(
            "one-choice", f"there is only one choice: {_some(single)}", found.spec.place("doc_to_choice")
        )


def _is_place(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _gold(one: Rendered) -> Any:
    """The right answer; where the choices are the inputs, the question says which."""
    return one.question if _is_place(one.question) else one.target


def _is_among(one: Rendered) -> bool:
    choices, gold = one.choices or (), _gold(one)
    targets = gold if isinstance(gold, (list, tuple)) else [gold]
    return bool(targets) and all(
        0 <= target < len(choices) if isinstance(target, int) else target in choices for target in targets
    )


def _check_spaces(found: Answers, findings: Findings) -> None:
    """lm-eval's own hint: exactly one of delimiter and choice should bring the space between question and answer."""
    delimiter = found.spec.target_delimiter
    first = found.rendered[0]
    if not first.choices or not all(isinstance(choice, str) and choice for choice in first.choices):
        return
    ends, starts = delimiter[-1:].isspace(), first.choices[0][0].isspace()
    if ends and starts:
        findings.note(
            "spaces",
            "`target_delimiter` ends and the choices begin with white space: the model sees it twice",
            found.spec.place("target_delimiter"),
        )
    elif not ends and not starts and first.prompt.strip() and not first.prompt[-1].isspace():
        findings.note(
            "spaces",
            "neither `target_delimiter` nor the choices bring white space: question and answer stick together",
            found.spec.place("target_delimiter"),
        )


def _check_stops(found: Answers, findings: Findings) -> None:
    given = found.spec.config.get("generation_kwargs")
    said = isinstance(given, dict) and given.get("until") is not None
    where = found.spec.place("generation_kwargs.until" if said else "generation_kwargs")
    hint = (
        "leave it out, or shorten the target"
        if said
        else "no `until` is given, so it is the text between examples: give one"
    )
    lenient = any(entry.arguments.get("ignore_punctuation") for entry in found.spec.metrics)
    uncounted = string.whitespace + (string.punctuation if lenient else "")
    for stop in stop_texts(found.spec):
        at_start, inside = [], []
        for one in found.rendered:
            texts = [text.rstrip(uncounted) for text in one.wanted()]
            at_start += [one.index] if texts and all(text.startswith(stop) for text in texts) else []
            inside += [one.index] if texts and all(stop in text for text in texts) else []
        if not inside:
            continue
        if at_start:
            what = f"the target begins with the stop text {stop!r}, so the answer is always empty: {_some(at_start)}"
        else:
            what = f"the stop text {stop!r} would cut the target off: {_some(inside)}"
        findings.add(_severity(found.spec), "cut-answer", what, where, hint)


def _severity(spec: TaskSpec) -> Severity:
    """A task's own code may take the target for something else than the answer: a program's tests, say."""
    compared = spec.process_results is None and all(isinstance(entry.metric, str) for entry in spec.metrics)
    return "warning" if compared else "note"


def _check_length(found: Answers, findings: Findings) -> None:
    """A word is a token at least; texts without spaces have one for every dozen bytes at the very least."""
    limits = token_limits(found.spec.generation_kwargs)
    if not limits:
        return
    key, limit = next(iter(limits.items()))
    short = []
    for one in found.rendered:
        needed = min((_least_tokens(text) for text in one.wanted()), default=0)
        if needed > limit:
            short.append(one.index)
    if short:
        findings.add(
            _severity(found.spec),
            "max-tokens",
            f"the target is longer than `{key}: {limit}` allows: {_some(short)}",
            found.spec.place(f"generation_kwargs.{key}"),
        )


def _least_tokens(text: str) -> int:
    return max(len(text.split()), len(text.encode("utf-8", "replace")) // 12)
