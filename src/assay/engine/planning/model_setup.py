"""Create the model of a run from its options, and probe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model, SupportsProbing, SupportsTokenLogprobs
from assay.engine.planning.recorded_model import RecordedModel
from assay.models import make_model

__all__ = ["get_rate_limits", "make_model_from_options", "make_run_model", "probe_model"]


def make_run_model(spec: RunSpec, given: Model | None = None) -> Model:
    """Return the model of a run: the given object, or a new one; with `--replicas`, replicated."""
    model = make_model_from_options(spec) if given is None else _enable_token_logprobs(spec, given)
    if spec.replicas == 1 and spec.ray is None:
        return model
    from assay.models.replicas import ReplicaConfig, ReplicatedModel  # few runs need them

    if isinstance(given, RecordedModel):
        return given
    wishes = ReplicaConfig(
        replicas=spec.replicas,
        address=spec.ray,
        resources=spec.replica_resources,
        model=spec.model,
        arguments=spec.model_args,
        device=spec.device,
        batch_size=spec.batch_size,
        media_bytes=spec.media_memory_mb * 2**20,
        workers=spec.workers,
    )
    make = partial(make_model_from_options, spec) if given is None else partial(_return_model, given)
    return ReplicatedModel(model, make, wishes)


def _return_model(model: Model) -> Model:
    """Return the model: a given object is sent to replicas as it is."""
    return model


def make_model_from_options(spec: RunSpec) -> Model:
    """Create the model that the options name, without opening it."""
    made = make_model(
        spec.model,
        spec.model_args,
        batch_size=spec.batch_size,
        device=spec.device,
        batch_api=spec.batch_api or None,
        chat_template=spec.apply_chat_template if isinstance(spec.apply_chat_template, str) else None,
        **get_rate_limits(spec),
    )
    return _enable_token_logprobs(spec, made)


def _enable_token_logprobs(spec: RunSpec, model: Model) -> Model:
    """Make the model return token log probabilities, if the run wants them and it can."""
    if spec.token_logprobs and isinstance(model, SupportsTokenLogprobs):
        model.give_tokens()
    return model


def get_rate_limits(spec: RunSpec) -> Mapping[str, Any]:
    """Return the rate limits, which the model and remote judges share."""
    return {"rpm": spec.rpm, "tpm": spec.tpm}


async def probe_model(model: Model | None) -> Sequence[str]:
    """Probe the server of a model for its capabilities; return notes.

    Raises:
        AssayError: The server refuses: invalid key, unknown model.
    """
    return await model.probe() if isinstance(model, SupportsProbing) else ()
