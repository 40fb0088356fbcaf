"""`use_prompt`: prompts kept apart from the task, in promptsource or in a YAML file of prompts.

`promptsource:NAME` takes a template of the dataset from the promptsource package; `FILE.yaml:NAME` takes
`prompts: {NAME: {doc_to_text, doc_to_target}}` from a file beside the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import MissingPackage, TaskError
from assay.core.specs import TaskSpec
from assay.tasks.prompts.templates import compile_template

__all__ = ["NamedPrompt", "load_named_prompt"]

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """How a document becomes a question, a target and, where the prompt has them, choices."""

    text: Callable[[Fields], str]
    target: Callable[[Fields], Any]
    choices: Callable[[Fields], Sequence[str]] | None = None


def load_named_prompt(spec: TaskSpec) -> NamedPrompt | None:
    """The prompt a task names, or None when it names none.

    Raises:
        TaskError: There is no such prompt.
        MissingPackage: It is kept in promptsource, which is not installed.
    """
    if spec.use_prompt is None:
        return None
    where = spec.place("use_prompt")
    category, colon, name = spec.use_prompt.partition(":")
    if not colon or not name:
        raise TaskError(
            f"`{spec.use_prompt}` names no prompt",
            where=where,
            hint="`promptsource:NAME` or `FILE.yaml:NAME`",
        )
    if category == "promptsource":
        return _from_promptsource(spec, name, where)
    if category.endswith((".yaml", ".yml")):
        return _from_file(Path(spec.path).parent / category, name, where)
    raise TaskError(
        f"prompts are not kept in `{category}`", where=where, hint="`promptsource:NAME` or `FILE.yaml:NAME`"
    )


def _from_promptsource(spec: TaskSpec, name: str, where: str) -> NamedPrompt:
    try:
        from promptsource.templates import DatasetTemplates
    except ModuleNotFoundError:
        raise MissingPackage.of("promptsource", f"the prompt `{name}`", where=where) from None
    templates = DatasetTemplates(spec.dataset_path, spec.dataset_name)
    if name not in templates.all_template_names:
        raise _no_prompt(name, list(templates.all_template_names), where)
    template = templates[name]

    def piece(fields: Fields, at: int) -> str:
        applied = template.apply(fields)
        return applied[at] if len(applied) == 2 else spec.fewshot_delimiter

    return NamedPrompt(
        text=lambda fields: piece(fields, 0),
        target=lambda fields: piece(fields, 1),
        choices=template.get_answer_choices_list,
    )


def _from_file(path: Path, name: str, where: str) -> NamedPrompt:
    try:
        prompts = yaml.safe_load(path.read_text(encoding="utf-8"))["prompts"]
        known = {str(key): value for key, value in prompts.items()}
    except OSError as error:
        raise TaskError(f"cannot read the prompts in `{path.name}`: {error.strerror}", where=where) from None
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise TaskError(
            f"`{path.name}` is not a file of prompts", where=where, hint="prompts: {NAME: {doc_to_text: …}}"
        ) from None
    if name not in known:
        raise _no_prompt(name, list(known), where)
    prompt = known[name]
    for key in ("doc_to_text", "doc_to_target"):
        if not isinstance(prompt, Mapping) or not isinstance(prompt.get(key), str):
            raise TaskError(f"the prompt `{name}` has no template `{key}`", where=str(path))
    return NamedPrompt(
        text=compile_template(prompt["doc_to_text"], where=f"{path}, {name}.doc_to_text"),
        target=compile_template(prompt["doc_to_target"], where=f"{path}, {name}.doc_to_target"),
    )


def _no_prompt(name: str, known: list[str], where: str) -> TaskError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(known[:8])}"
    return TaskError(f"no prompt is called `{name}`", where=where, hint=hint)
