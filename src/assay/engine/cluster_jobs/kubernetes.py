"""The manifest of a Kubernetes job: a RayJob of the KubeRay operator, and the script that it runs."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from assay.core.errors import InvalidOption
from assay.engine.cluster_jobs.job import ClusterJob, parse_time_limit_s

__all__ = ["KubernetesSettings", "check_output_path", "format_ray_job", "is_on_volume", "parse_volume"]

_SCRIPT_FOLDER = "/opt/assay-job"
_SCRIPT = "run.sh"
_SHARED_MEMORY = "/dev/shm"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_KEY = re.compile(rf"([a-z0-9.-]+/)?{_LABEL.pattern}", re.ASCII)
_QUANTITY = re.compile(r"\d+(\.\d+)?([KMGTPE]i?|m|k)?")
_HEAD_CPUS = 2
_HEAD_MEMORY = "8Gi"
_MIN_TOKEN_VERSION = (2, 52)
"""The first version of Ray with tokens."""

_TTL_S = 600
"""How long the pods of a finished job stay, for their logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """What only Kubernetes needs."""

    image: str
    """Contains Assay, Ray and the packages of the model; the same for all pods."""

    namespace: str | None = None
    volumes: tuple[tuple[str, str], ...] = ()
    """(persistent volume claim, folder in the pods)."""

    secret: str | None = None
    """The secret with the values of the environment variables."""

    retries: int = 3
    """How often the job starts again after a failure."""

    gpu_resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    ray_version: str | None = None
    requires_token: bool = True
    """Whether Ray accepts only connections with a token, which the operator creates (KubeRay 1.5.1)."""


def parse_volume(text: str) -> tuple[str, str]:
    """Parse `CLAIM:/folder`.

    Raises:
        InvalidOption: The text names no claim or no absolute folder.
    """
    claim, separator, folder = text.partition(":")
    if not (separator and _NAME.fullmatch(claim) and re.fullmatch(r"/[^:]*[^:/][^:]*", folder)):
        raise InvalidOption(
            f"`{text}` is not a volume",
            where="--volume",
            hint="a persistent volume claim and a folder: results:/results",
        )
    return claim, folder.rstrip("/")


def check_output_path(output_path: str | None, volumes: tuple[tuple[str, str], ...]) -> None:
    """Check that results survive the pods.

    Raises:
        InvalidOption: The output path is not on a volume.
    """
    if output_path is None or not is_on_volume(output_path, volumes):
        raise InvalidOption(
            "the results would be lost with the pods: --output_path is not on a volume",
            where="--output_path",
            hint="for example --volume results:/results --output_path /results/mmlu",
        )


def is_on_volume(path: str, volumes: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a path is in the folder of a volume."""
    place = PurePosixPath(posixpath.normpath(path))
    return any(place.is_relative_to(folder) for _, folder in volumes)


def format_ray_job(job: ClusterJob, settings: KubernetesSettings) -> str:
    """Return two YAML documents: a ConfigMap with the script of the run, and the RayJob.

    The script is a file, because the operator splits and joins the words of an entrypoint again.

    Raises:
        InvalidOption: A value is not valid in Kubernetes.
    """
    if job.environment and settings.secret is None:
        raise InvalidOption(
            "environment variables need a secret with their values",
            where="--env",
            hint="kubectl create secret generic NAME --from-literal=…, and pass --secret NAME",
        )
    for name, value in (("namespace", settings.namespace), ("secret", settings.secret)):
        if value is not None and not _NAME.fullmatch(value):
            raise InvalidOption(f"`{value}` is not a valid name", where=f"--{name}")
    if job.memory is not None and not _QUANTITY.fullmatch(job.memory):
        raise InvalidOption(
            f"`{job.memory}` is not an amount of memory", where="--memory", hint="for example 64Gi"
        )
    _check_pod_settings(settings)
    metadata: dict[str, Any] = {"name": job.name, "labels": {"app.kubernetes.io/name": "assay"}}
    if settings.namespace is not None:
        metadata["namespace"] = settings.namespace
    script = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {_SCRIPT: _format_script(job)},
    }
    ray_job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata,
        "spec": _build_spec(job, settings),
    }
    head = (
        "# Written by `assay launch k8s`. Start it with `kubectl apply -f FILE`; follow it with\n"
        f"# `kubectl logs -f -l job-name={job.name}`. A job that starts again continues where the run stopped.\n"
    )
    if not settings.requires_token:
        head += "# Ray requires no token: anyone who can reach the pods can run code in them. Restrict it with a NetworkPolicy.\n"
    documents = [yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=1000) for one in (script, ray_job)]
    return head + "---\n".join(documents)


def _check_pod_settings(settings: KubernetesSettings) -> None:
    """Check what the API server would refuse after the schema accepts it."""
    if not settings.image or re.search(r"\s", settings.image):
        raise InvalidOption(f"`{settings.image}` is not the name of an image", where="--image")
    if not _LABEL_KEY.fullmatch(settings.gpu_resource):
        raise InvalidOption(
            f"`{settings.gpu_resource}` is not the name of a resource", where="--gpu_resource"
        )
    for key, value in settings.node_selector.items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL.fullmatch(value)):
            raise InvalidOption(f"`{key}={value}` is not a label", where="--node_selector")
    folders = [_SCRIPT_FOLDER, _SHARED_MEMORY, *(folder for _, folder in settings.volumes)]
    if twice := next((folder for folder in folders if folders.count(folder) > 1), None):
        raise InvalidOption(f"two volumes have the folder {twice}", where="--volume")


def _format_script(job: ClusterJob) -> str:
    needed = [f': "${{{name}:?the secret has no key {name}}}"' for name in job.environment]
    lines = ["#!/bin/bash", "set -euo pipefail", *needed, f"exec {shlex.join(job.command)} --ray auto"]
    return "\n".join(lines) + "\n"


def _check_token_version(given: str | None) -> str:
    if given is None:
        return ".".join(map(str, (*_MIN_TOKEN_VERSION, 0)))
    match = re.match(r"(\d+)\.(\d+)", given)
    if match is None or (int(match[1]), int(match[2])) < _MIN_TOKEN_VERSION:
        raise InvalidOption(
            f"Ray {given} has no tokens: anyone who can reach the pods could run code in them",
            where="--ray_version",
            hint="use an image with Ray 2.52 or later, or accept this with --no_ray_token",
        )
    return given


def _build_spec(job: ClusterJob, settings: KubernetesSettings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "entrypoint": f"bash {_SCRIPT_FOLDER}/{_SCRIPT}",
        "submissionMode": "K8sJobMode",
        "backoffLimit": settings.retries,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": _TTL_S,
    }
    if job.time is not None:
        spec["activeDeadlineSeconds"] = parse_time_limit_s(job.time)
    cluster: dict[str, Any] = {} if settings.ray_version is None else {"rayVersion": settings.ray_version}
    if settings.requires_token:  # the operator needs the version to check that Ray supports tokens
        cluster = {"rayVersion": _check_token_version(settings.ray_version), "authOptions": {"mode": "token"}}
    cluster["headGroupSpec"] = {
        "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
        "template": _build_pod(job, settings, "ray-head", {"cpu": str(_HEAD_CPUS), "memory": _HEAD_MEMORY}),
    }
    resources = {"cpu": str(job.cpus)}
    if job.memory is not None:
        resources["memory"] = job.memory
    if job.gpus:
        resources[settings.gpu_resource] = str(job.gpus)
    cluster["workerGroupSpecs"] = [
        {
            "groupName": "workers",
            "replicas": job.nodes,
            "minReplicas": job.nodes,
            "maxReplicas": job.nodes,
            "rayStartParams": {},
            "template": _build_pod(job, settings, "ray-worker", resources, settings.node_selector),
        }
    ]
    return {**spec, "rayClusterSpec": cluster}


def _build_pod(
    job: ClusterJob,
    settings: KubernetesSettings,
    name: str,
    resources: Mapping[str, str],
    node_selector: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    claims = dict.fromkeys(claim for claim, _ in settings.volumes)
    names = {claim: f"volume-{number}" for number, claim in enumerate(claims)}
    container: dict[str, Any] = {
        "name": name,
        "image": settings.image,
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "volumeMounts": [
            {"name": "script", "mountPath": _SCRIPT_FOLDER, "readOnly": True},
            {"name": "shared-memory", "mountPath": _SHARED_MEMORY},
            *({"name": names[claim], "mountPath": folder} for claim, folder in settings.volumes),
        ],
    }
    if job.environment:
        container["env"] = [
            {"name": one, "valueFrom": {"secretKeyRef": {"name": settings.secret, "key": one}}}
            for one in job.environment
        ]
    pod: dict[str, Any] = {
        "containers": [container],
        "volumes": [
            {"name": "script", "configMap": {"name": job.name}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            *({"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()),
        ],
    }
    if node_selector:
        pod["nodeSelector"] = dict(node_selector)
    return {"spec": pod}


class _Dumper(yaml.SafeDumper):
    """Writes scripts as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if text.count("\n") > 1 else None)


_Dumper.add_representer(str, _represent_text)
