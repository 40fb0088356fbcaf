"""The RayJob of a Kubernetes job."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from assay.core.errors import InvalidOption
from assay.engine.cluster_jobs.job import ClusterJob
from assay.engine.cluster_jobs.kubernetes import (
    KubernetesSettings,
    check_output_path,
    format_ray_job,
    parse_volume,
)


def strict(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
QUANTITIES = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": r"^\d+(\.\d+)?([KMGTPE]i?|m|k)?$"},
}
NAME = {"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}
METADATA = strict(["name"], name=NAME, namespace=NAME, labels=TEXTS)
ENVIRONMENT = strict(
    ["name", "valueFrom"],
    name=TEXT,
    valueFrom=strict(["secretKeyRef"], secretKeyRef=strict(["name", "key"], name=NAME, key=TEXT)),
)
CONTAINER = strict(
    ["name", "image", "resources"],
    name=NAME,
    image=TEXT,
    env={"type": "array", "items": ENVIRONMENT},
    resources=strict(["requests", "limits"], requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts={
        "type": "array",
        "items": strict(["name", "mountPath"], name=NAME, mountPath=TEXT, readOnly=FLAG),
    },
)
VOLUME = {
    **strict(
        ["name"],
        name=NAME,
        configMap=strict(["name"], name=NAME),
        emptyDir=strict([], medium={"enum": ["", "Memory"]}),
        persistentVolumeClaim=strict(["claimName"], claimName=TEXT),
    ),
    "minProperties": 2,
    "maxProperties": 2,
}
POD = strict(
    ["spec"],
    spec=strict(
        ["containers"],
        containers={"type": "array", "items": CONTAINER, "minItems": 1},
        volumes={"type": "array", "items": VOLUME},
        nodeSelector=TEXTS,
    ),
)
RAY_JOB = json.loads(Path(__file__).with_name("ray_job_schema.json").read_text("utf-8"))
"""The keys of KubeRay's API `ray.io/v1`; `POD` has the part of a pod that a job uses. A key that is not listed is an error."""

CONFIG_MAP = strict(
    ["apiVersion", "kind", "metadata", "data"],
    apiVersion={"const": "v1"},
    kind={"const": "ConfigMap"},
    metadata=METADATA,
    data=TEXTS,
)

WORDS = ("assay", "run", "--system_instruction", 'You\'re "kind"\nto $HOME `id`', "--tasks", "my task.yaml")
JOB = ClusterJob(
    name="assay-sums",
    command=WORDS,
    nodes=2,
    gpus=4,
    cpus=16,
    memory="64Gi",
    time="1-00",
    environment=("HF_TOKEN",),
)
SETTINGS = KubernetesSettings(
    image="registry.example/assay:1",
    namespace="eval",
    volumes=(("results", "/results"), ("my.models", "/models"), ("results", "/again")),
    secret="keys",
    node_selector={"gpu": "a100"},
    ray_version="2.60.0",
)


def load(
    job: ClusterJob = JOB, settings: KubernetesSettings = SETTINGS
) -> tuple[dict[str, Any], dict[str, Any]]:
    config_map, ray_job = yaml.safe_load_all(format_ray_job(job, settings))
    return config_map, ray_job


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        (JOB, SETTINGS),
        (
            ClusterJob(name="x", command=("assay", "run")),
            KubernetesSettings(image="i", volumes=(("r", "/r"),)),
        ),
    ],
    ids=["everything", "defaults"],
)
def test_the_documents_match_the_schema(job: ClusterJob, settings: KubernetesSettings) -> None:
    config_map, ray_job = load(job, settings)
    assert not [error.message for error in Draft202012Validator(CONFIG_MAP).iter_errors(config_map)]
    assert list(find_errors(ray_job)) == []


def find_errors(ray_job: dict[str, Any]) -> Iterator[str]:
    for error in Draft202012Validator(RAY_JOB).iter_errors(ray_job):
        yield error.message
    for error in Draft202012Validator(METADATA).iter_errors(ray_job["metadata"]):
        yield error.message
    cluster = ray_job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        for error in Draft202012Validator(POD).iter_errors(group["template"]):
            yield error.message


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("spec", "retries", 3),
        ("spec", "submissionMode", "K8sJob"),
        ("spec", "activeDeadlineSeconds", 0),
        ("spec.rayClusterSpec", "auth", {"mode": "token"}),
        ("spec.rayClusterSpec.authOptions", "mode", "tokens"),
        ("spec.rayClusterSpec.headGroupSpec", "rayStartParams", {"num-cpus": 0}),
        ("spec.rayClusterSpec.headGroupSpec.template.spec", "volume", []),
        ("spec.rayClusterSpec.workerGroupSpecs.0", "replicas", "2"),
        ("spec.rayClusterSpec.workerGroupSpecs.0", "nodeSelector", {}),
    ],
)
def test_the_schema_rejects_other_keys_and_values(place: str, key: str, value: Any) -> None:
    _, ray_job = load()
    part: Any = ray_job
    for step in place.split("."):
        part = part[int(step) if step.isdecimal() else step]
    part[key] = value
    assert len(list(find_errors(ray_job))) == 1


def test_the_script_in_the_config_map_passes_the_words_unchanged() -> None:
    config_map, ray_job = load()
    script = config_map["data"]["run.sh"]
    assert ray_job["spec"]["entrypoint"] == "bash /opt/assay-job/run.sh"
    shown = script.replace("exec assay", "printf '[%s]'")
    done = subprocess.run(
        ["bash", "-c", shown], env={"HF_TOKEN": "x"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(f"[{word}]" for word in (*WORDS[1:], "--ray", "auto"))
    missing = subprocess.run(["bash", "-c", shown], env={}, capture_output=True, text=True)
    assert missing.returncode != 0 and "the secret has no key HF_TOKEN" in missing.stderr


def test_workers_have_the_resources_and_every_mount_has_a_volume() -> None:
    _, ray_job = load()
    spec = ray_job["spec"]
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 2
    for group in (spec["rayClusterSpec"]["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}
    assert spec["activeDeadlineSeconds"] == 86_400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"secret": None}, "environment variables need a secret"),
        ({"namespace": "Bad Name"}, "`Bad Name` is not a valid name"),
        ({"image": "a b"}, "`a b` is not the name of an image"),
        ({"gpu_resource": "nvidia gpu"}, "`nvidia gpu` is not the name of a resource"),
        ({"node_selector": {"gpu": "a 100"}}, "`gpu=a 100` is not a label"),
        ({"node_selector": {"a/b/c": "d"}}, "`a/b/c=d` is not a label"),
        ({"volumes": (("one", "/x"), ("two", "/x"))}, "two volumes have the folder /x"),
        ({"volumes": (("one", "/dev/shm"),)}, "two volumes have the folder /dev/shm"),
    ],
)
def test_invalid_settings_are_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        load(JOB, KubernetesSettings(**{"image": "i", "secret": "keys", **change}))


def test_an_invalid_amount_of_memory_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="not an amount of memory"):
        load(ClusterJob(name="x", command=("assay",), memory="lots"), KubernetesSettings(image="i"))


@pytest.mark.parametrize(
    "text", ["results", "results:", "results:relative", "results:/", "results://", "Bad_Name:/x", "a:/x:y"]
)
def test_invalid_volumes_are_errors(text: str) -> None:
    with pytest.raises(InvalidOption, match="is not a volume"):
        parse_volume(text)


def test_results_must_be_on_a_volume() -> None:
    volumes = (parse_volume("results:/results/"),)
    check_output_path("/results/a", volumes)
    for path in (None, "results", "/resultsx/a", "/tmp", "/results/../tmp"):
        with pytest.raises(InvalidOption, match="the results would be lost"):
            check_output_path(path, volumes)


@pytest.mark.parametrize(("given", "written"), [(None, "2.52.0"), ("2.60.1", "2.60.1")])
def test_ray_requires_a_token(given: str | None, written: str) -> None:
    cluster = load(settings=replace(SETTINGS, ray_version=given))[1]["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"} and cluster["rayVersion"] == written


def test_ray_without_tokens_needs_consent() -> None:
    old = replace(SETTINGS, ray_version="2.9.3")
    with pytest.raises(InvalidOption, match=r"Ray 2\.9\.3 has no tokens"):
        format_ray_job(JOB, old)
    text = format_ray_job(JOB, replace(old, requires_token=False))
    assert "authOptions" not in text and "# Ray requires no token: anyone who can reach the pods" in text
