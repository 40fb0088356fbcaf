"""`use_prompt`: prompts from promptsource or from a YAML file of prompts.

`promptsource:NAME` is a template of the dataset in promptsource: in the checkout that `ASSAY_PROMPTSOURCE` names, or in the
installed package. `FILE.yaml:NAME` is
`prompts: {NAME: {doc_to_text, doc_to_target}}` in a file in the folder of the task file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import TaskError
from assay.core.records.specs import TaskSpec
from assay.tasks.files.yaml_aliases import load_yaml
from assay.tasks.prompts.promptsource_templates import (
    GET_PROMPTSOURCE,
    find_templates_folder,
    load_templates,
)
from assay.tasks.prompts.templates import compile_template

__all__ = ["NamedPrompt", "list_prompts", "load_named_prompt"]

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """The functions that compute the question, the target and the choices, if any, of a document."""

    text: Callable[[Fields], str]
    target: Callable[[Fields], Any]
    choices: Callable[[Fields], Sequence[str]] | None = None


def load_named_prompt(spec: TaskSpec) -> NamedPrompt | None:
    """Load the prompt of `use_prompt`. Return None if the task does not set it.

    Raises:
        TaskError: The prompt does not exist, or the templates of promptsource are not available.
    """
    if spec.use_prompt is None:
        return None
    where = spec.place("use_prompt")
    category, colon, name = spec.use_prompt.partition(":")
    if not colon or not name:
        raise TaskError(
            f"`{spec.use_prompt}` is not the name of a prompt",
            where=where,
            hint="`promptsource:NAME` or `FILE.yaml:NAME`",
        )
    if category == "promptsource":
        return _from_promptsource(spec, name, where)
    if category.endswith((".yaml", ".yml")):
        return _from_file(Path(spec.path).parent / category, name, where)
    raise TaskError(
        f"`{category}` is not a source of prompts",
        where=where,
        hint="`promptsource:NAME` or `FILE.yaml:NAME`",
    )


def list_prompts(
    pattern: str, dataset: str, subset: str | None, *, folder: Path, where: str = ""
) -> list[str]:
    """Return the prompts that a pattern names, sorted: `promptsource:*` or `FILE.yaml:*`, whose file is in a folder.

    Raises:
        TaskError: No prompt matches, or the prompts cannot be read.
    """
    category, _, wanted = pattern.partition(":")
    if category == "promptsource":
        known = list(_load_promptsource(wanted, dataset, subset, where)[1])
    else:
        known = list(_read_prompts(folder / category, where))
    found = sorted(name for name in known if fnmatchcase(name, wanted))
    if not found:
        raise _unknown_prompt_error(wanted, known, where)
    return [f"{category}:{name}" for name in found]


def _load_promptsource(name: str, dataset: str, subset: str | None, where: str) -> tuple[Any, list[str]]:
    """Return the templates of a dataset in promptsource, and their names."""
    folder = find_templates_folder()
    if folder is not None:
        templates: Any = load_templates(folder, dataset, subset, where=where)
        return templates, list(templates)
    try:
        from promptsource.templates import DatasetTemplates
    except ModuleNotFoundError:
        raise TaskError(
            f"the prompt `{name}` needs the templates of promptsource, which has no release for Python"
            f" {sys.version_info.major}.{sys.version_info.minor}",
            where=where,
            hint=f"{GET_PROMPTSOURCE}; then set ASSAY_PROMPTSOURCE to the folder promptsource-0.2.3",
        ) from None
    templates = DatasetTemplates(dataset, subset)
    return templates, list(templates.all_template_names)


def _from_promptsource(spec: TaskSpec, name: str, where: str) -> NamedPrompt:
    templates, known = _load_promptsource(name, str(spec.dataset_path), spec.dataset_name, where)
    if name not in known:
        raise _unknown_prompt_error(name, known, where)
    template = templates[name]

    def render(fields: Fields, index: int) -> str:
        applied = template.apply(fields)
        return applied[index] if len(applied) == 2 else spec.fewshot_delimiter

    return NamedPrompt(
        text=lambda fields: render(fields, 0),
        target=lambda fields: render(fields, 1),
        choices=template.get_answer_choices_list,
    )


def _from_file(path: Path, name: str, where: str) -> NamedPrompt:
    known = _read_prompts(path, where)
    if name not in known:
        raise _unknown_prompt_error(name, list(known), where)
    prompt = known[name]
    for key in ("doc_to_text", "doc_to_target"):
        if not isinstance(prompt, Mapping) or not isinstance(prompt.get(key), str):
            raise TaskError(f"the prompt `{name}` has no template `{key}`", where=str(path))
    return NamedPrompt(
        text=compile_template(prompt["doc_to_text"], where=f"{path}, {name}.doc_to_text"),
        target=compile_template(prompt["doc_to_target"], where=f"{path}, {name}.doc_to_target"),
    )


def _read_prompts(path: Path, where: str) -> dict[str, Any]:
    """Read the prompts of a file by name."""
    try:
        prompts = load_yaml(path.read_text(encoding="utf-8"))["prompts"]
        return {str(key): value for key, value in prompts.items()}
    except OSError as error:
        raise TaskError(f"cannot read the prompts in `{path.name}`: {error.strerror}", where=where) from None
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise TaskError(
            f"`{path.name}` is not a file of prompts", where=where, hint="prompts: {NAME: {doc_to_text: …}}"
        ) from None


def _unknown_prompt_error(name: str, known: list[str], where: str) -> TaskError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"prompts: {', '.join(known[:8])}"
    return TaskError(f"unknown prompt: `{name}`", where=where, hint=hint)
