r"""Templates that compile, and the classic mistake: `'\n'` in single quotes is a backslash and an n, not a line end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from assay.checks.findings import Findings
from assay.core.errors import AssayError
from assay.core.specs import TaskSpec
from assay.tasks.makers import MARKUP, unread_template
from assay.tasks.templates import compile_template

__all__ = ["TEMPLATES", "check_texts"]

TEMPLATES = (
    "description doc_to_text doc_to_target doc_to_choice doc_to_image doc_to_audio gen_prefix "
    "doc_to_decontamination_query"
).split()
"""Keys under which a text is a template, unless it names a column."""

_FEWSHOT = "doc_to_text doc_to_target doc_to_choice gen_prefix".split()
_DELIMITERS = "fewshot_delimiter target_delimiter".split()
_LATEX = (
    "nabla natural ncong ne nearrow neg neq newcommand newline nexists ngeq ngtr ni nleq nless nmid nobreak node "
    "noindent nolimits nonumber normalsize not notag notin nparallel nsim nsubseteq nu nwarrow"
).split()
_WRITTEN_LINE_END = re.compile(rf"(?<!\\)\\n(?!(?:{'|'.join(word[1:] for word in _LATEX)})(?![a-z]))")


def check_texts(spec: TaskSpec, findings: Findings) -> None:
    """Compile every template; look at every text for written line ends."""
    for key, value in _templates(spec):
        try:
            compile_template(value, where=spec.place(key))
        except AssayError as error:
            findings.raised("template", error)
    for key, text in _texts(spec):
        if _WRITTEN_LINE_END.search(MARKUP.sub("", text)):
            findings.warning(
                "written-line-end",
                rf"`{key}` holds a backslash and an n, not a line end: {text!r:.60}",
                spec.place(key),
                r"""YAML reads \n as a line end in double quotes only: "\n" """.strip(),
            )
    _check_choices(spec, findings)


def _check_choices(spec: TaskSpec, findings: Findings) -> None:
    """Choices in a list are taken as they stand, as in lm-eval; only a text is a template."""
    choice = unread_template(spec.config.get("doc_to_choice"))
    if choice is not None:
        findings.warning(
            "choice-not-a-template",
            f"a choice is asked as it is written, braces and all: {choice!r:.60}",
            spec.place("doc_to_choice"),
            'write one text for all of them: doc_to_choice: "{{[right, wrong]}}"',
        )


def _templates(spec: TaskSpec) -> Iterator[tuple[str, str]]:
    for key in TEMPLATES:
        if isinstance(value := spec.config.get(key), str):
            yield key, value
    for key in _FEWSHOT:
        if isinstance(value := getattr(spec.fewshot, key), str):
            yield f"fewshot_config.{key}", value


def _texts(spec: TaskSpec) -> Iterator[tuple[str, str]]:
    for key, template in _templates(spec):
        is_python = key.endswith("doc_to_choice") or template.lstrip().startswith("[")
        if not is_python:  # there the backslash is read a second time
            yield key, template
    for key in _DELIMITERS:
        if isinstance(value := spec.config.get(key), str):
            yield key, value
        if isinstance(value := getattr(spec.fewshot, key), str):
            yield f"fewshot_config.{key}", value
    generation = spec.config.get("generation_kwargs")
    if isinstance(generation, Mapping):
        yield from _nested(generation.get("until"), "generation_kwargs.until")
    yield from _nested(spec.lmms_eval_specific_kwargs, "lmms_eval_specific_kwargs")


def _nested(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _nested(item, f"{key}.{name}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _nested(item, f"{key}[{at}]")
