"""Who answers: one adapter per backend, Request -> Response. Knows nothing of tasks, documents or scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import AssayError, BadOption
from assay.core.ports import Model
from assay.core.registry import Registry

__all__ = ["MODELS", "make_model"]

MODELS: Registry[Callable[..., Model]] = Registry("model")
"""Name -> a class or function that takes the model's arguments. Importing an adapter is left to its first use."""

MODELS.add_lazy("embedded", "assay.models.embedded:EmbeddedModel")


def make_model(name: str, arguments: Mapping[str, Any]) -> Model:
    """An adapter with its arguments, not yet opened: nothing is loaded.

    Raises:
        UnknownName: No model is called that.
        BadOption: The model does not take these arguments.
    """
    factory = MODELS.get(name, where="--model")
    try:
        return factory(**arguments)
    except AssayError:
        raise
    except TypeError as error:
        raise BadOption(
            f"the model `{name}` does not take these arguments: {error}", where="--model_args"
        ) from None
