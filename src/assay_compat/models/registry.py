"""Find model classes of lm-eval and lmms-eval: in the installed packages, and in files of the user."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib.machinery import PathFinder
from typing import Any

from assay.core.errors import AssayError, InvalidOption, MissingPackage, UnknownName
from assay.core.ports import Model
from assay_compat.commands.model_references import make_reference_class
from assay_compat.models.lm_eval_model import LmEvalModel
from assay_compat.models.lmms_eval_model import LmmsEvalModel, is_lmms_class
from assay_compat.models.sources import ClassSource

__all__ = ["HARNESSES", "find_model", "get_model_class", "list_models", "register_class"]

HARNESSES = ("lm_eval", "lmms_eval")
_CLASSES: dict[str, type] = {}
"""Classes that `@register_model` named, of the user and of the packages."""


def register_class(model_class: type, *names: str) -> None:
    """Register a model class. A file that is loaded again replaces its classes."""
    for name in names:
        _CLASSES[name] = model_class


def find_model(name: str) -> Callable[..., Model] | None:
    """Return a factory for `lm_eval/NAME`, `lmms_eval/NAME` or the name of a registered class; None if there is none.

    Raises:
        UnknownName: The package has no such model.
        MissingPackage: The package, or a package that the model needs, is not installed.
    """
    harness, slash, model = name.partition("/")
    if harness in HARNESSES and slash:
        found = _CLASSES.get(model)
        if found is None or is_lmms_class(found) != (harness == "lmms_eval"):
            found = _import_class(harness, model)
        return _make_factory(harness, model, found)
    if name not in _CLASSES:
        return None
    return _make_factory("lmms_eval" if is_lmms_class(_CLASSES[name]) else "lm_eval", name, _CLASSES[name])


def get_model_class(name: str) -> type:
    """Return the class of a model of lm-eval: a registered class, one of the package, or without the package Assay's model.

    Raises:
        UnknownName: There is no such model.
    """
    if name in _CLASSES:
        return _CLASSES[name]
    return _import_class("lm_eval", name) if _is_installed("lm_eval") else make_reference_class(name)


def list_models(harness: str) -> list[str]:
    """Return the names of the models of an installed package and of registered classes, sorted."""
    own = [name for name, found in _CLASSES.items() if is_lmms_class(found) == (harness == "lmms_eval")]
    if not _is_installed(harness):
        return sorted(own)
    models = importlib.import_module(f"{harness}.models")
    if harness == "lm_eval":
        return sorted({*own, *getattr(models, "MODEL_MAPPING", ())})
    return sorted({*own, *_list_lmms_models(models)})


def _list_lmms_models(models: Any) -> list[str]:
    listed = getattr(models, "list_available_models", None)
    return list(listed(include_aliases=True)) if listed else list(models.AVAILABLE_MODELS)


def _import_class(harness: str, model: str) -> type:
    user = f"the model `{harness}/{model}`"
    if not _is_installed(harness):
        raise MissingPackage.of(harness, user, where="--model")
    os.environ.setdefault("TQDM_DISABLE", "1")  # Assay shows the progress
    try:
        names = list_models(harness)
        if model not in names:
            close = get_close_matches(model, names, n=1)
            hint = f"did you mean `{harness}/{close[0]}`?" if close else f"{harness} has {', '.join(names)}"
            raise UnknownName(f"no model of {harness} is called `{model}`", where="--model", hint=hint)
        models = importlib.import_module(f"{harness}.models")
        if harness == "lmms_eval":
            return models.get_model(model)  # type: ignore[no-any-return]
        if model in _CLASSES:
            return _CLASSES[model]
        module, _, attribute = models.MODEL_MAPPING[model].partition(":")
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    except AssayError:
        raise
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error.name or str(error), user, where="--model") from None
    except Exception as error:
        raise InvalidOption(
            f"{user} cannot be imported: {type(error).__name__}: {error}", where="--model"
        ) from error


def _is_installed(harness: str) -> bool:
    """Whether the real package is installed. The distribution of aliases has no folder `api`."""
    spec = PathFinder.find_spec(harness)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return PathFinder.find_spec(f"{harness}.api", folders) is not None if folders else False


def _make_factory(harness: str, name: str, model_class: type) -> Callable[..., Model]:
    adapter = LmmsEvalModel if harness == "lmms_eval" else LmEvalModel

    def make(
        batch_size: int | str | None = None,
        device: str | None = None,
        seeds: Sequence[int | None] | None = None,
        requests_per_call: int | None = None,
        **arguments: Any,
    ) -> Model:
        source = ClassSource(
            name=name,
            harness=harness,
            model_class=model_class,
            arguments=arguments,
            batch_size=batch_size,
            device=device,
        )
        return adapter(source, seeds=seeds, requests_per_call=requests_per_call)

    make.__doc__ = (model_class.__doc__ or "").strip().partition("\n")[
        0
    ] or f"{model_class.__name__} of {harness}."
    return make
