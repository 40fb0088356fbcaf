"""Check the first documents of a task, rendered as in a run: columns, prompts, choices, targets, media."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any

from assay.checks.config_values import find_token_limits
from assay.checks.findings import Findings, Severity
from assay.checks.generation import list_stop_texts
from assay.checks.templates import TEMPLATE_KEYS
from assay.core.errors import AssayError
from assay.core.records.messages import Image
from assay.core.records.requests import Request
from assay.core.records.specs import TaskSpec
from assay.tasks.prompts.choice_lists import CHOICE_VARIABLES
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.prompts.templates import find_template_names
from assay.tasks.task import Task
from assay.user_code.errors import wrap_user_errors

__all__ = ["RenderedDocuments", "check_answers", "check_documents"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_TESTS_FOR_COLUMN = re.compile(r"\bis\s+(?:not\s+)?(?:un)?defined\b|\|\s*d(?:efault)?\b")


def check_documents(task: Task, count: int | None, findings: Findings) -> int:
    """Render the first `count` documents of a task (None: all), report what is wrong with them, and return their number."""
    is_class = task.spec.config.get("class") is not None
    if not is_class:
        _check_columns(task, findings)
    found = RenderedDocuments(task.spec)
    rendering = None
    problems: dict[str, tuple[AssayError, list[int]]] = {}
    looked_at = 0
    for document in islice(task.documents(), count):
        looked_at += 1
        try:
            with wrap_user_errors(task.spec):
                rendering = rendering or task.start_pass()
                requests = rendering.render_requests(document)
                _load_images(requests)
                if not is_class:
                    fields = copy_fields(document.fields)
                    found.add(
                        document.index,
                        requests,
                        task.question(fields),
                        task.target(fields),
                        task.choices(fields),
                    )
        except AssayError as error:
            problems.setdefault(error.what, (error, []))[1].append(document.index)
    for problem, indices in problems.values():
        kind = "media" if "media" in problem.what or "picture" in problem.what else "document"
        others = "" if len(indices) == 1 else f" and {len(indices) - 1} more"
        findings.error(kind, f"document {indices[0]}{others}: {problem.what}", problem.where, problem.hint)
    if not is_class:
        check_answers(found, findings)
    return looked_at


def _load_images(requests: tuple[Request, ...]) -> None:
    for part in requests[0].prompt.media if requests else ():
        if isinstance(part, Image):
            part.load()


def _check_columns(task: Task, findings: Findings) -> None:
    """Report names in templates that are not columns, also in branches that the first documents do not reach."""
    spec, columns = task.spec, task.columns
    if spec.choice_column is not None:
        columns = columns | {*CHOICE_VARIABLES}
    own: list[tuple[str, Any, Collection[str] | None]]
    own = [(key, spec.config.get(key), columns) for key in TEMPLATE_KEYS]
    shot_columns = _find_example_columns(task)
    own += [
        (f"fewshot_config.{key}", getattr(spec.fewshot, key), shot_columns)
        for key in ("doc_to_text", "doc_to_target", "doc_to_choice")
    ]
    for key, template, known in own:
        if not isinstance(template, str) or not template or template in columns or known is None:
            continue
        for name in sorted(_find_required_columns(template) - set(known)):
            close = get_close_matches(name, sorted(known), n=1)
            findings.warning(
                "column",
                f"`{key}` names `{name}`, which is not a column",
                spec.place(key),
                f"{f'did you mean `{close[0]}`? ' if close else ''}columns: {', '.join(sorted(known))}",
            )
        _check_bare_word(spec, key, template, known, findings)


def _find_example_columns(task: Task) -> Collection[str] | None:
    """Return the columns of the few-shot examples, or None if a function generates the examples."""
    samples = task.spec.fewshot.samples
    if isinstance(samples, list) and samples and isinstance(samples[0], Mapping):
        return set(samples[0])
    return None if samples is not None else task.columns


def _find_required_columns(template: str) -> set[str]:
    """Return the columns a template needs; none if the template tests whether a column exists."""
    if _TESTS_FOR_COLUMN.search(template):
        return set()
    return find_template_names(template)


def _check_bare_word(
    spec: TaskSpec, key: str, text: str, columns: Collection[str], findings: Findings
) -> None:
    """Report a single word that is not a column: it renders as the same text for every document."""
    if key not in ("doc_to_text", "doc_to_target", "doc_to_choice") or not _WORD.fullmatch(text):
        return
    close = get_close_matches(text, sorted(columns), n=1, cutoff=0.7)
    if close or key == "doc_to_choice":
        findings.warning(
            "column",
            f"`{key}: {text}` is not a column, so every document gets the constant text `{text}`",
            spec.place(key),
            f"did you mean `{close[0]}`?" if close else f"columns: {', '.join(sorted(columns))}",
        )


@dataclass(frozen=True, slots=True)
class RenderedDocument:
    """One rendered document with its target and choices."""

    index: int
    prompt: str
    has_media: bool
    question: Any
    target: Any
    choices: Sequence[Any] | None

    def acceptable_texts(self) -> Iterator[str]:
        """Yield every text that counts as a correct answer."""
        targets = self.target if isinstance(self.target, (list, tuple)) else [self.target]
        for target in targets:
            if self.choices is not None and _is_index(target):
                if 0 <= target < len(self.choices):
                    yield str(self.choices[target])
            elif isinstance(target, (str, int, float)) and not isinstance(target, bool):
                yield str(target)


@dataclass(slots=True)
class RenderedDocuments:
    """The documents that rendered without an error."""

    spec: TaskSpec
    documents: list[RenderedDocument] = field(default_factory=list)

    def add(
        self,
        index: int,
        requests: Sequence[Request],
        question: Any,
        target: Any,
        choices: Sequence[Any] | None,
    ) -> None:
        """Add a document."""
        prompt = requests[0].prompt if requests else None
        self.documents.append(
            RenderedDocument(
                index,
                prompt.text if prompt else "",
                bool(prompt and prompt.media),
                question,
                target,
                choices,
            )
        )


def check_answers(found: RenderedDocuments, findings: Findings) -> None:
    """Check prompts, choices and targets. Needs no model."""
    spec = found.spec
    if not found.documents or spec.output_type.scores_whole_text:
        return
    _check_prompts(found, findings)
    if spec.doc_to_choice is not None:
        _check_choices(found, findings)
    if spec.output_type.compares_choices:
        _check_whitespace(found, findings)
    if spec.output_type.generates_text and not spec.output_type.is_dialogue:
        _check_stop_texts(found, findings)
        _check_length(found, findings)


def _format_documents(documents: list[int]) -> str:
    """Return `document 3` or `documents 0, 1, 2`."""
    names = ", ".join(str(index) for index in documents)
    return f"document{'' if len(documents) == 1 else 's'} {names}"


def _check_prompts(found: RenderedDocuments, findings: Findings) -> None:
    empty = [one.index for one in found.documents if not one.prompt.strip() and not one.has_media]
    if empty:
        generates = found.spec.output_type.generates_text
        findings.add(
            "warning" if generates else "note",
            "empty-prompt",
            f"the prompt is empty: {_format_documents(empty)}",
            found.spec.place("doc_to_text"),
        )


def _check_choices(found: RenderedDocuments, findings: Findings) -> None:
    outside = [one.index for one in found.documents if not _has_valid_target(one)]
    if outside:
        first = next(one for one in found.documents if one.index == outside[0])
        choices = ", ".join(f"{choice!r:.30}" for choice in list(first.choices or ())[:6])
        findings.add(
            "error" if len(outside) == len(found.documents) else "warning",
            "target-not-a-choice",
            f"the target is not among the choices: {_format_documents(outside)}",
            found.spec.place("doc_to_target"),
            f"document {first.index}: target {_get_gold(first)!r:.40}, choices [{choices}]",
        )
    repeated = [
        one.index
        for one in found.documents
        if one.choices and len(set(map(str, one.choices))) < len(one.choices)
    ]
    if repeated:
        findings.warning(
            "repeated-choice",
            f"duplicate choice: {_format_documents(repeated)}",
            found.spec.place("doc_to_choice"),
        )
    _check_f1_labels(found, findings)
    single = [one.index for one in found.documents if one.choices is not None and len(one.choices) == 1]
    if single and found.spec.output_type.compares_choices:
        findings.warning(
            "one-choice",
            f"only one choice: {_format_documents(single)}",
            found.spec.place("doc_to_choice"),
        )


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_f1_labels(found: RenderedDocuments, findings: Findings) -> None:
    """Report `f1` of a task with more than two choices: it is the F1 score of label 1 against label 0."""
    spec = found.spec
    most = max((len(one.choices) for one in found.documents if one.choices is not None), default=0)
    if most < 3 or not spec.output_type.compares_choices or spec.process_results is not None:
        return
    for index, entry in enumerate(spec.metrics):
        if entry.metric == "f1" and entry.aggregation in (None, "f1"):
            findings.warning(
                "metric-fit",
                f"`f1` has no value with more than two classes; documents have up to {most} choices",
                entry.where or spec.place(f"metric_list[{index}]"),
                "`aggregation: macro_f1` or `weighted_f1`",
            )


def _get_gold(one: RenderedDocument) -> Any:
    """Return the gold answer; if the choices are the inputs, the question holds its index."""
    return one.question if _is_index(one.question) else one.target


def _has_valid_target(one: RenderedDocument) -> bool:
    choices, gold = one.choices or (), _get_gold(one)
    targets = gold if isinstance(gold, (list, tuple)) else [gold]
    return bool(targets) and all(
        0 <= target < len(choices) if isinstance(target, int) else target in choices for target in targets
    )


def _check_whitespace(found: RenderedDocuments, findings: Findings) -> None:
    """Check that exactly one of delimiter and choice adds the space before the answer, as lm-eval recommends."""
    delimiter = found.spec.target_delimiter
    first = found.documents[0]
    if not first.choices or not all(isinstance(choice, str) and choice for choice in first.choices):
        return
    ends, starts = delimiter[-1:].isspace(), first.choices[0][0].isspace()
    if ends and starts:
        findings.note(
            "spaces",
            "`target_delimiter` ends with white space and the choices start with it: the prompt contains both",
            found.spec.place("target_delimiter"),
        )
    elif not ends and not starts and first.prompt.strip() and not first.prompt[-1].isspace():
        findings.note(
            "spaces",
            "neither `target_delimiter` nor the choices add white space: no space separates question and answer",
            found.spec.place("target_delimiter"),
        )


def _check_stop_texts(found: RenderedDocuments, findings: Findings) -> None:
    given = found.spec.config.get("generation_kwargs")
    has_until = isinstance(given, dict) and given.get("until") is not None
    where = found.spec.place("generation_kwargs.until" if has_until else "generation_kwargs")
    hint = (
        "remove it from `until`, or shorten the target"
        if has_until
        else "without `until`, generation stops at the few-shot delimiter: set `until`"
    )
    lenient = any(entry.arguments.get("ignore_punctuation") for entry in found.spec.metrics)
    uncounted = string.whitespace + (string.punctuation if lenient else "")
    for stop in list_stop_texts(found.spec):
        at_start, inside = [], []
        for one in found.documents:
            texts = [text.rstrip(uncounted) for text in one.acceptable_texts()]
            at_start += [one.index] if texts and all(text.startswith(stop) for text in texts) else []
            inside += [one.index] if texts and all(stop in text for text in texts) else []
        if not inside:
            continue
        if at_start:
            what = f"the target starts with the stop string {stop!r}, so the answer is always empty: {_format_documents(at_start)}"
        else:
            what = f"the target contains the stop string {stop!r}, which truncates the answer: {_format_documents(inside)}"
        findings.add(_choose_severity(found.spec), "cut-answer", what, where, hint)


def _choose_severity(spec: TaskSpec) -> Severity:
    """Lower the severity if task code may not compare the target with the answer (it may hold unit tests)."""
    compared = spec.process_results is None and all(isinstance(entry.metric, str) for entry in spec.metrics)
    return "warning" if compared else "note"


def _check_length(found: RenderedDocuments, findings: Findings) -> None:
    """Report targets longer than the token limit; a word is at least one token, and so are 12 bytes."""
    limits = find_token_limits(found.spec.generation_kwargs)
    if not limits:
        return
    key, limit = next(iter(limits.items()))
    short = []
    for one in found.documents:
        needed = min((_estimate_min_tokens(text) for text in one.acceptable_texts()), default=0)
        if needed > limit:
            short.append(one.index)
    if short:
        findings.add(
            _choose_severity(found.spec),
            "max-tokens",
            f"the target is longer than `{key}: {limit}` allows: {_format_documents(short)}",
            found.spec.place(f"generation_kwargs.{key}"),
        )


def _estimate_min_tokens(text: str) -> int:
    return max(len(text.split()), len(text.encode("utf-8", "replace")) // 12)
