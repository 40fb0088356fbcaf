r"""Check templates: they compile, and contain no `'\n'` in single quotes, which YAML reads as a backslash and an n."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from assay.checks.findings import Findings
from assay.core.errors import AssayError
from assay.core.records.specs import TaskSpec
from assay.tasks.prompts.field_compilers import TEMPLATE_MARKUP, find_unrendered_template
from assay.tasks.prompts.templates import compile_template

__all__ = ["TEMPLATE_KEYS", "check_templates"]

TEMPLATE_KEYS = (
    "description doc_to_text doc_to_target doc_to_choice doc_to_image doc_to_audio gen_prefix "
    "doc_to_decontamination_query"
).split()
"""Keys whose string is a template, unless it names a column."""

_FEWSHOT_TEMPLATE_KEYS = "doc_to_text doc_to_target doc_to_choice gen_prefix".split()
_DELIMITER_KEYS = "fewshot_delimiter target_delimiter".split()
_LATEX_COMMANDS = (
    "nabla natural ncong ne nearrow neg neq newcommand newline nexists ngeq ngtr ni nleq nless nmid nobreak node "
    "noindent nolimits nonumber normalsize not notag notin nparallel nsim nsubseteq nu nwarrow"
).split()
_ESCAPED_NEWLINE = re.compile(rf"(?<!\\)\\n(?!(?:{'|'.join(word[1:] for word in _LATEX_COMMANDS)})(?![a-z]))")


def check_templates(spec: TaskSpec, findings: Findings) -> None:
    """Compile every template and report escaped line breaks in every text."""
    for key, value in _iter_templates(spec):
        try:
            compile_template(value, where=spec.place(key))
        except AssayError as error:
            findings.add_exception("template", error)
    for key, text in _iter_texts(spec):
        if _ESCAPED_NEWLINE.search(TEMPLATE_MARKUP.sub("", text)):
            findings.warning(
                "written-line-end",
                rf"`{key}` contains a backslash and an n, not a line break: {text!r:.60}",
                spec.place(key),
                r"""YAML reads \n as a line break only in double quotes: "\n" """.strip(),
            )
    _check_choices(spec, findings)


def _check_choices(spec: TaskSpec, findings: Findings) -> None:
    """Report template markup in a list of choices: as in lm-eval, only a string is a template."""
    choice = find_unrendered_template(spec.config.get("doc_to_choice"))
    if choice is not None:
        findings.warning(
            "choice-not-a-template",
            f"a choice in a list is not a template and is used literally: {choice!r:.60}",
            spec.place("doc_to_choice"),
            'write one template for all choices: doc_to_choice: "{{[right, wrong]}}"',
        )


def _iter_templates(spec: TaskSpec) -> Iterator[tuple[str, str]]:
    for key in TEMPLATE_KEYS:
        if isinstance(value := spec.config.get(key), str):
            yield key, value
    for key in _FEWSHOT_TEMPLATE_KEYS:
        if isinstance(value := getattr(spec.fewshot, key), str):
            yield f"fewshot_config.{key}", value


def _iter_texts(spec: TaskSpec) -> Iterator[tuple[str, str]]:
    for key, template in _iter_templates(spec):
        is_python = key.endswith("doc_to_choice") or template.lstrip().startswith("[")
        if not is_python:  # Python literals interpret the backslash themselves
            yield key, template
    for key in _DELIMITER_KEYS:
        if isinstance(value := spec.config.get(key), str):
            yield key, value
        if isinstance(value := getattr(spec.fewshot, key), str):
            yield f"fewshot_config.{key}", value
    generation = spec.config.get("generation_kwargs")
    if isinstance(generation, Mapping):
        yield from _iter_nested_texts(generation.get("until"), "generation_kwargs.until")
    yield from _iter_nested_texts(spec.lmms_eval_specific_kwargs, "lmms_eval_specific_kwargs")


def _iter_nested_texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _iter_nested_texts(item, f"{key}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _iter_nested_texts(item, f"{key}[{index}]")
