"""Generate the keyword arguments of `assay.run` and `assay.plan` with their types, for editors and type checkers."""

from __future__ import annotations

import textwrap
from dataclasses import fields

from assay.core.options.run_spec import Option, RunSpec

PATH = "../../src/assay/engine/planning/run_keywords.py"
"""Relative to the folder of the reference pages."""

_HEAD = '''\
"""The keyword arguments of `assay.run` and `assay.plan`.

Made by scripts/generate_reference.py from the options in `core/options/run_spec.py`: change them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from assay.models.function_model import ModelObject
    from assay.tasks.python_task import PythonTask

__all__ = ["RunKeywords"]


class RunKeywords(TypedDict, total=False):
    """The options of a run. Texts are parsed as on the command line."""

'''
_OBJECTS = {
    "model": "str | ModelObject | Callable[..., Any]",
    "judge": "str | ModelObject | Callable[..., Any] | Sequence[str | ModelObject | Callable[..., Any]]",
    "user": "str | ModelObject | Callable[..., Any]",
    "seed": "int | Sequence[int | None] | str",
    "samples": "Mapping[str, Sequence[int]] | str | None",
    "reasoning_tags": "Sequence[Sequence[str]] | str | None",
    "tasks": "str | PythonTask | Mapping[str, Any] | Sequence[str | PythonTask | Mapping[str, Any]]",
}
"""Options that accept Python objects or further types."""

_MORE = {
    "model": "A function of a prompt and an object that implements `Model` are models, too.",
    "judge": "A function of a prompt and an object that implements `Model` are judges, too.",
    "tasks": "Also `assay.Task` objects and dictionaries with the keys of a task file.",
}


def generate_module() -> str:
    """Return the text of the module."""
    pieces = [_HEAD]
    for item in fields(RunSpec):
        option: Option = item.metadata["option"]
        text = " ".join([option.help, *([_MORE[item.name]] if item.name in _MORE else [])])
        pieces.append(f"    {item.name}: {_format_type(item.name, str(item.type))}\n")
        pieces.append(_format_docstring(text.replace("\\", "\\\\")))
    return "".join(pieces).rstrip("\n") + "\n"


def _format_type(name: str, declared: str) -> str:
    """Return the type of a keyword: that of the option, or a text to parse."""
    if name in _OBJECTS:
        return _OBJECTS[name]
    if declared.startswith("Literal["):
        return declared.replace("'", '"')
    if declared.startswith("list["):
        return f"Sequence[{declared.removeprefix('list[').removesuffix(']')}] | str"
    names = declared.split(" | ")
    if declared == "bool" or "str" in names:
        return declared
    has_none = names[-1] == "None"
    return " | ".join([*names[: len(names) - has_none], "str", *(["None"] if has_none else [])])


def _format_docstring(text: str) -> str:
    whole = f'    """{text}"""\n\n'
    if len(whole) <= 112:
        return whole
    lines = textwrap.wrap(text, 104)
    return '    """' + "\n    ".join(lines) + '\n    """\n\n'
