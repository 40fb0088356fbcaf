"""The model a run asks: made from the options, and looked at where its abilities have to be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.ports import Model, Probes
from assay.core.runspec import RunSpec
from assay.models import make_model

__all__ = ["budgets_of", "model_of", "probed"]


def model_of(spec: RunSpec) -> Model:
    """The model the options name, not opened."""
    return make_model(
        spec.model,
        spec.model_args,
        batch_size=spec.batch_size,
        device=spec.device,
        batch_api=spec.batch_api or None,
        chat_template=spec.apply_chat_template if isinstance(spec.apply_chat_template, str) else None,
        **budgets_of(spec),
    )


def budgets_of(spec: RunSpec) -> Mapping[str, Any]:
    """What models behind a network share, whether they answer or judge."""
    return {"rpm": spec.rpm, "tpm": spec.tpm}


async def probed(model: Model | None) -> Sequence[str]:
    """Let a server show what it can do, so that a task it cannot answer is refused; what is worth knowing of it.

    Raises:
        AssayError: It answers, and says that it will not: a wrong key, a model it has not.
    """
    return await model.probe() if isinstance(model, Probes) else ()
