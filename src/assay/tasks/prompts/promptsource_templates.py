"""Read the templates of promptsource without the package, which cannot be installed on current versions of Python.

`ASSAY_PROMPTSOURCE` names the source of promptsource (unpacked or a checkout), or its folder `templates`. A dataset has one file,
`templates/DATASET/templates.yaml` or `templates/DATASET/SUBSET/templates.yaml`, with templates that render the question and
the target, divided by `|||`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.core.errors import TaskError
from assay.tasks.files.yaml_aliases import load_yaml

__all__ = ["GET_PROMPTSOURCE", "PromptsourceTemplate", "find_templates_folder", "load_templates"]

Fields = Mapping[str, Any]

GET_PROMPTSOURCE = (
    "`pip download promptsource==0.2.3 --no-deps --ignore-requires-python`"
    " and `tar xzf promptsource-0.2.3.tar.gz`"
)
"""How to get the templates: the package does not install on current versions of Python, its source has the files."""

_SEPARATOR = "|||"
_PROTECTED_SEPARATOR = "\x00assay separator\x00"
"""Stands for the separator inside a value of the document, so that it does not divide the text."""

_MAX_VALUE_CHARACTERS = 2048
"""promptsource truncates each inserted value."""


def find_templates_folder() -> Path | None:
    """Return the folder of templates that `ASSAY_PROMPTSOURCE` names, or None if the variable is not set.

    Raises:
        TaskError: The variable does not name a checkout of promptsource.
    """
    named = os.environ.get("ASSAY_PROMPTSOURCE")
    if not named:
        return None
    root = Path(named).expanduser()
    for folder in (root / "promptsource" / "templates", root / "templates", root):
        if folder.is_dir() and any(folder.glob("*/**/templates.yaml")):
            return folder
    raise TaskError(
        f"`{named}` is no folder with the templates of promptsource",
        where="ASSAY_PROMPTSOURCE",
        hint=f"{GET_PROMPTSOURCE} give the folder promptsource-0.2.3",
    )


def load_templates(
    folder: Path, dataset: str, subset: str | None, *, where: str = ""
) -> dict[str, PromptsourceTemplate]:
    """Load the templates of a dataset by name. The owner in `OWNER/NAME` may be missing in the folder.

    Raises:
        TaskError: There are no templates of this dataset, or their file is not readable.
    """
    for name in dict.fromkeys((dataset, dataset.rpartition("/")[2])):
        file = folder.joinpath(name, *([subset] if subset else []), "templates.yaml")
        if file.is_file():
            return _read_templates(file)
    wanted = f"`{dataset}`, `{subset}`" if subset else f"`{dataset}`"
    raise TaskError(f"promptsource has no templates for {wanted}", where=where, hint=f"searched {folder}")


class _Loader(yaml.SafeLoader):
    """Reads the tagged mappings of promptsource as plain ones."""


for _tag in ("!Template", "!TemplateMetadata"):
    _Loader.add_constructor(_tag, lambda loader, node: loader.construct_mapping(node, deep=True))  # type: ignore[arg-type]


def _read_templates(file: Path) -> dict[str, PromptsourceTemplate]:
    try:
        listed = load_yaml(file.read_text(encoding="utf-8"), _Loader)["templates"].values()
        return {
            str(one["name"]): PromptsourceTemplate(
                source=one["jinja"], choices=one.get("answer_choices"), where=f"{file}, {one['name']}"
            )
            for one in listed
        }
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise TaskError(f"cannot read the templates of promptsource: {error}", where=str(file)) from None


@dataclass(frozen=True)
class PromptsourceTemplate:
    """One template: the question and the target of a document, and its answer choices if it has any."""

    source: str
    choices: str | Sequence[str] | None
    where: str

    def apply(self, fields: Fields) -> list[str]:
        """Return the rendered parts: the question and the target, or fewer if the template has no separator."""
        values = {**_protect(fields), "answer_choices": self.get_answer_choices_list(fields)}
        return [_restore(part).strip() for part in self._render(self._template, values).split(_SEPARATOR)]

    def get_answer_choices_list(self, fields: Fields) -> list[str] | None:
        """Return the answer choices of a document; None if the template has none."""
        if self.choices is None or not isinstance(self.choices, str):
            return None if self.choices is None else [str(choice) for choice in self.choices]
        rendered = self._render(self._choices_template, _protect(fields))
        return [_restore(choice.strip()) for choice in rendered.split(_SEPARATOR)]

    @cached_property
    def _template(self) -> jinja2.Template:
        return self._compile(self.source.replace("}}", f" | string | truncate({_MAX_VALUE_CHARACTERS}) }}}}"))

    @cached_property
    def _choices_template(self) -> jinja2.Template:
        return self._compile(str(self.choices))

    def _compile(self, source: str) -> jinja2.Template:
        try:
            return _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TaskError(f"the template is not valid Jinja: {error.message}", where=self.where) from None

    def _render(self, template: jinja2.Template, values: Fields) -> str:
        try:
            return template.render(**values)
        except jinja2.TemplateError as error:
            raise TaskError(f"the template cannot be rendered: {error}", where=self.where) from None


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment()
    environment.globals["zip"] = zip
    environment.filters["choice"] = _choose
    environment.filters["most_frequent"] = _find_most_frequent
    return environment


def _choose(choices: Sequence[Any]) -> Any:
    """Return one of the choices. The same list gives the same choice, so that every pass renders the same prompt."""
    return random.Random(repr(list(choices))).choice(list(choices))


def _find_most_frequent(items: Sequence[Any]) -> list[Any] | None:
    counts = Counter(items).most_common()
    return [item for item, count in counts if count == counts[0][1]] if counts else None


def _protect(fields: Fields) -> dict[str, Any]:
    return {
        key: value.replace(_SEPARATOR, _PROTECTED_SEPARATOR) if isinstance(value, str) else value
        for key, value in fields.items()
    }


def _restore(text: str) -> str:
    return text.replace(_PROTECTED_SEPARATOR, _SEPARATOR)
