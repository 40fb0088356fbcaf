"""Lists the arguments of a model with their defaults, for `assay ls models NAME`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from assay.core.python_syntax import parse_python

__all__ = ["ModelArgument", "list_arguments"]

_RECORDS = {
    "assay.models.hf": ("assay.models.hf.arguments", "HfArguments"),
    "assay.models.vllm": ("assay.models.vllm.arguments", "VllmArguments"),
    "assay.models.llamacpp": ("assay.models.llamacpp.arguments", "LlamaCppArguments"),
    "assay.models.smollm2": ("assay.models.llamacpp.arguments", "LlamaCppArguments"),
    **dict.fromkeys(
        ("assay.models.remote", "assay.models.batches", "assay.models.hosted"),
        ("assay.models.remote.options", "Options"),
    ),
}
"""Package of a model -> the record that its further arguments are parsed into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArgument:
    """An argument of a model."""

    name: str
    default: str
    """As text; empty if the argument has no default or the default is None."""

    about: str = ""


def list_arguments(factory: Callable[..., Any]) -> list[ModelArgument]:
    """Return the arguments that a model accepts in `--model_args`, in order of their declaration."""
    found: dict[str, ModelArgument] = {}
    takes_more = False
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_more = True
        elif parameter.name != "self":
            default = parameter.default
            found[parameter.name] = ModelArgument(
                name=parameter.name, default=_format_default(None if default is parameter.empty else default)
            )
    record = _find_record(factory) if takes_more else None
    if record is not None:
        abouts = _read_field_docs(record)
        for item in fields(record):
            found[item.name] = ModelArgument(
                name=item.name, default=_format_default(_get_default(item)), about=abouts.get(item.name, "")
            )
    return list(found.values())


def _find_record(factory: Callable[..., Any]) -> type | None:
    from importlib import import_module

    module = getattr(factory, "__module__", "")
    for package, (place, name) in _RECORDS.items():
        if module == package or module.startswith(f"{package}."):
            record: type = getattr(import_module(place), name)
            return record
    return None


def _get_default(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return item.default
    return None if item.default_factory is MISSING else item.default_factory()


def _format_default(value: Any) -> str:
    return "" if value is None or value in ("", {}, (), []) else str(value)


def _read_field_docs(record: type) -> dict[str, str]:
    """Return the first line of the text below each field of a class."""
    (body,) = parse_python(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            assert isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            found[field.target.id] = str(below.value.value).strip().partition("\n")[0]
    return found
