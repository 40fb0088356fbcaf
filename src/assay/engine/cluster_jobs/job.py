"""A cluster job: the run's command line, its resources, and the environment variables it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.run_spec import Option, RunSpec, list_options
from assay.core.secrets import (
    contains_redacted,
    is_secret_key,
    redact_assignments,
    redact_fields,
    redact_values,
)
from assay.engine.planning.manifests.recorded_plan import drop_redacted
from assay.engine.results.run_facts import register_secrets
from assay.models import MODELS
from assay.models.replicas.resources import compute_resources

__all__ = ["ClusterJob", "build_job_name", "build_run_words", "choose_replicas", "parse_time_limit_s"]

_MAX_NAME_LENGTH = 47
"""Kubernetes: the operator adds a suffix to the name of a RayJob, and names have at most 63 characters."""

_REMOTE_MODULES = ("assay.models.batches", "assay.models.hosted", "assay.models.remote")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d{1,2}){0,2})")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """What both kinds of clusters need to know of a job."""

    name: str
    command: tuple[str, ...]
    """The words of `assay run …`, without the address of the Ray cluster."""

    nodes: int = 1
    gpus: int = 0
    """GPUs per node."""

    cpus: int = 8
    """CPUs per node."""

    memory: str | None = None
    """Memory per node, as the cluster writes it: `64G`."""

    time: str | None = None
    """Time limit: `4:00:00`, `2-00:00:00`."""

    environment: tuple[str, ...] = field(default=())
    """Names of environment variables that the run needs. Their values are never written."""

    def __post_init__(self) -> None:
        for name in self.environment:
            if not _ENVIRONMENT_NAME.fullmatch(name):
                raise InvalidOption(
                    f"`{redact_assignments(name)}` is not the name of an environment variable",
                    where="--env",
                    hint="pass only the name: the value would be written to the job file",
                )


def build_job_name(spec: RunSpec, given: str | None) -> str:
    """Return a name that is valid on both kinds of clusters.

    >>> build_job_name(RunSpec(model="vllm", tasks=["mmlu", "gsm8k"]), None)
    'assay-vllm-mmlu'
    """
    if given is not None:
        if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", given) or len(given) > _MAX_NAME_LENGTH:
            raise InvalidOption(
                f"`{given}` is not a valid job name",
                where="--job_name",
                hint=f"lower-case letters, digits and dashes, at most {_MAX_NAME_LENGTH} characters, starting with a letter",
            )
        return given
    words = ["assay", spec.model, spec.tasks[0].rstrip("/").rpartition("/")[2].removesuffix(".yaml")]
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())
    return slug[:_MAX_NAME_LENGTH].strip("-")


def build_run_words(options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the words of `assay run` for some options, and the names of credentials that were left out.

    Raises:
        InvalidOption: An option that affects results contains a secret and is not a credential.
    """
    register_secrets(RunSpec.of(options))
    declared = {name: option for name, _, option in list_options()}
    words, hidden = [], []
    for name, value in options.items():
        option = declared[name]
        for one in value if option.repeatable and isinstance(value, (list, tuple)) else [value]:
            text, dropped = _format_value(name, one, option)
            hidden += dropped
            for lost in dropped:
                if option.affects_results and not _is_credential(lost):
                    raise InvalidOption(
                        f"{lost} contains a secret: the job would run without it, with other results",
                        where=f"--{name}",
                        hint="remove the secret from the value; pass credentials with an environment variable and --env NAME",
                    )
            if text is None:
                words.append(f"--{name}")
            elif text:
                words += [f"--{name}", text]
    return words, hidden


def _format_value(name: str, value: Any, option: Option) -> tuple[str | None, list[str]]:
    """Return the text of a value, None for a switch, empty to leave the option out; and the secrets in it."""
    if option.flag:
        return (None if value else ""), []
    if isinstance(value, Mapping):
        safe = redact_values(redact_fields(dict(value)))
        kept = {
            key: item for key, item in safe.items() if item == value.get(key) or not contains_redacted(item)
        }
        return (json.dumps(kept) if kept else ""), [f"--{name} {key}" for key in safe if key not in kept]
    if isinstance(value, (list, tuple)):
        simple = all(isinstance(item, (int, type(None))) for item in value)
        return ",".join(map(str, value)) if simple else json.dumps(value), []
    if isinstance(value, bool):
        return str(value).lower(), []
    text = redact_assignments(str(value))
    if text != str(value) and contains_redacted(text):
        kept_text = drop_redacted(text) if option.repeatable else ""
        if not kept_text or contains_redacted(kept_text):
            return "", [f"--{name}"]
        lost = [part.partition("=")[0] for part in text.split(",") if part not in kept_text.split(",")]
        return kept_text, [f"--{name} {key}" for key in lost]
    return text, []


def _is_credential(lost: str) -> bool:
    """Return whether `--option key` names a credential by its key: `--model_args api_key`."""
    key = lost.partition(" ")[2]
    return is_secret_key(key)


def choose_replicas(spec: RunSpec, nodes: int, gpus: int, *, given: bool) -> int:
    """Return the number of replicas: the given one, or as many as fit.

    Raises:
        InvalidOption: The replicas need more GPUs than the job has, or one of them more than a node has.
    """
    module = str(getattr(MODELS.get(spec.model, where="--model"), "__module__", ""))
    if module.startswith(_REMOTE_MODULES):
        raise InvalidOption(
            f"the model `{spec.model}` runs on a server: it needs no cluster",
            where="--model",
            hint="use `assay run` on one machine; `launch` is for models that run in the job, such as hf and vllm",
        )
    wanted = compute_resources(
        spec.replica_resources, spec.model, spec.model_args, spec.device, {"GPU": float(gpus)}
    )
    each = wanted.get("GPU", 0.0)
    if each > gpus:
        raise InvalidOption(
            f"a replica needs {each:g} GPUs, a node has {gpus}",
            where="--gpus",
            hint="a replica runs on one node",
        )
    room = nodes * int(gpus // each) if each else nodes
    if given and each and spec.replicas > room:
        raise InvalidOption(
            f"{spec.replicas} replicas need {spec.replicas * each:g} GPUs; {nodes} nodes with {gpus} GPUs have room for {room}",
            where="--replicas",
            hint="use more --nodes or --gpus",
        )
    return spec.replicas if given else room


def parse_time_limit_s(text: str) -> int:
    """Return a time limit in seconds, as SLURM reads it: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.

    >>> parse_time_limit_s("90"), parse_time_limit_s("4:00:00"), parse_time_limit_s("1-12")
    (5400, 14400, 129600)

    Raises:
        InvalidOption: The text is not a time limit.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidOption(
            f"`{text}` is not a time limit", where="--time", hint="for example 4:00:00 or 2-00:00:00"
        )
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return int(match["days"]) * 86_400 + hours * 3_600 + minutes * 60 + seconds
    units: Sequence[int] = {1: (60,), 2: (60, 1), 3: (3_600, 60, 1)}[len(parts)]
    return sum(part * unit for part, unit in zip(parts, units, strict=True))
