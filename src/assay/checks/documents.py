"""The first documents, rendered as a run would: columns, prompts, choices, targets, media."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from assay.checks.answers import Answers, check_answers
from assay.checks.findings import Findings
from assay.checks.texts import TEMPLATES
from assay.core.errors import AssayError
from assay.core.messages import Image
from assay.core.requests import Request
from assay.core.specs import TaskSpec
from assay.tasks.makers import loan
from assay.tasks.task import Task
from assay.tasks.templates import template_names
from assay.user_code.errors import wrap_user_errors

__all__ = ["check_documents"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_ASKS = re.compile(r"\bis\s+(?:not\s+)?(?:un)?defined\b|\|\s*d(?:efault)?\b")


def check_documents(task: Task, count: int, findings: Findings) -> None:
    """Render the first `count` documents of a task whose data are here."""
    is_class = task.spec.config.get("class") is not None
    if not is_class:
        _check_columns(task, findings)
    found = Answers(task.spec)
    rendering = None
    problems: dict[str, tuple[AssayError, list[int]]] = {}
    for document in islice(task.documents(), count):
        try:
            with wrap_user_errors(task.spec):
                rendering = rendering or task.begin()
                requests = rendering.requests(document)
                _open_pictures(requests)
                if not is_class:
                    fields = loan(document.fields)
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


def _open_pictures(requests: tuple[Request, ...]) -> None:
    for part in requests[0].prompt.media if requests else ():
        if isinstance(part, Image):
            part.load()


def _check_columns(task: Task, findings: Findings) -> None:
    """Names in templates that no column has: also in branches the first documents do not take."""
    spec, columns = task.spec, task.columns
    own: list[tuple[str, Any, Collection[str] | None]]
    own = [(key, spec.config.get(key), columns) for key in TEMPLATES]
    shot_columns = _shot_columns(task)
    own += [
        (f"fewshot_config.{key}", getattr(spec.fewshot, key), shot_columns)
        for key in ("doc_to_text", "doc_to_target", "doc_to_choice")
    ]
    for key, template, known in own:
        if not isinstance(template, str) or not template or template in columns or known is None:
            continue
        for name in sorted(_required_names(template) - set(known)):
            close = get_close_matches(name, sorted(known), n=1)
            findings.warning(
                "column",
                f"`{key}` names `{name}`, which is no column",
                spec.place(key),
                f"{f'did you mean `{close[0]}`? ' if close else ''}columns: {', '.join(sorted(known))}",
            )
        _check_bare_word(spec, key, template, known, findings)


def _shot_columns(task: Task) -> Collection[str] | None:
    """The columns of the examples; None where a function makes them up."""
    samples = task.spec.fewshot.samples
    if isinstance(samples, list) and samples and isinstance(samples[0], Mapping):
        return set(samples[0])
    return None if samples is not None else task.columns


def _required_names(template: str) -> set[str]:
    """The names a template takes from the document; none where it asks first what is there."""
    if _ASKS.search(template):
        return set()
    return template_names(template)


def _check_bare_word(
    spec: TaskSpec, key: str, text: str, columns: Collection[str], findings: Findings
) -> None:
    """A single word that is no column is the same constant text for every document; mostly it was meant as one."""
    if key not in ("doc_to_text", "doc_to_target", "doc_to_choice") or not _WORD.fullmatch(text):
        return
    close = get_close_matches(text, sorted(columns), n=1, cutoff=0.7)
    if close or key == "doc_to_choice":
        findings.warning(
            "column",
            f"`{key}: {text}` is no column, so it is the text `{text}` for every document",
            spec.place(key),
            f"did you mean `{close[0]}`?" if close else f"columns: {', '.join(sorted(columns))}",
        )
