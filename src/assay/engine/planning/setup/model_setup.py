"""Create the model of a run from its options, and probe it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model, SupportsProbing, SupportsTokenLogprobs, SupportsToolProbing
from assay.engine.planning.setup.recorded_model import RecordedModel
from assay.models import MODELS, make_model
from assay.tasks.files.helper_functions import compatibility_layers, import_helper_file

__all__ = [
    "get_rate_limits",
    "load_model_files",
    "make_model_from_options",
    "make_run_model",
    "probe_model",
    "register_model_class",
]


def make_run_model(spec: RunSpec, given: Model | None = None) -> Model:
    """Return the model of a run: the given object, or a new one; with `--replicas`, replicated."""
    model = make_model_from_options(spec) if given is None else _enable_token_logprobs(spec, given)
    if isinstance(given, RecordedModel):
        return given
    if spec.replicas == 1 and spec.ray is None:
        if spec.replica_resources:
            raise InvalidOption(
                "`--replica_resources` has no effect: the run has no replicas",
                where="--replica_resources",
                hint="add `--replicas N` or `--ray ADDRESS` (local models only), or remove `--replica_resources`",
            )
        return model
    from assay.models.replicas import ReplicaConfig, ReplicatedModel  # few runs need them

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
    load_model_files(spec.include_path)
    register_model_class(spec.model)
    made = make_model(
        spec.model,
        spec.model_args,
        batch_size=spec.batch_size,
        device=spec.device,
        batch_api=spec.batch_api or None,
        chat_template=spec.apply_chat_template if isinstance(spec.apply_chat_template, str) else None,
        seeds=spec.seed,
        **get_rate_limits(spec),
    )
    return _enable_token_logprobs(spec, made)


def load_model_files(include_path: Iterable[str]) -> None:
    """Import the Python files among `--include_path`: they register model classes.

    Raises:
        AssayError: A file does not exist or fails on import.
    """
    for path in include_path:
        if path.endswith(".py"):
            file = Path(path).expanduser().resolve()
            if not file.is_file():
                raise InvalidOption(f"model file not found: `{path}`", where="--include_path")
            import_helper_file(file, where="--include_path")


def register_model_class(name: str) -> None:
    """Register the model class of another harness that a name refers to: `lm_eval/hf`, or a class of the user."""
    if name in MODELS:
        return
    for layer in compatibility_layers():
        factory = layer.find_model(name)
        if factory is not None:
            MODELS.add(name, factory, replace=True)


def _enable_token_logprobs(spec: RunSpec, model: Model) -> Model:
    """Make the model return token log probabilities, if the run wants them and it can."""
    if spec.token_logprobs and isinstance(model, SupportsTokenLogprobs):
        model.give_tokens()
    return model


def get_rate_limits(spec: RunSpec) -> Mapping[str, Any]:
    """Return the rate limits, which the model and remote judges share."""
    return {"rpm": spec.rpm, "tpm": spec.tpm, "max_retry_wait": spec.max_retry_wait}


async def probe_model(model: Model | None, *, tools: bool = False) -> Sequence[str]:
    """Probe the server of a model for its capabilities, with `tools` also for tool calls; return notes.

    Raises:
        AssayError: The server refuses: invalid key, unknown model.
    """
    notes: list[str] = list(await model.probe()) if isinstance(model, SupportsProbing) else []
    if tools and model is not None and isinstance(model, SupportsToolProbing):
        notes += await model.probe_tools()
    return notes
