"""Name runs and their folders: readable, and the same for the same work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.fingerprints import digest_json
from assay.core.installation import assay_version
from assay.core.options.run_spec import RunSpec
from assay.core.records.specs import TaskSpec
from assay.tasks.digests import digest_data, digest_spec
from assay.tasks.task import Task

__all__ = [
    "build_run_name",
    "compute_run_digest",
    "compute_task_digests",
    "get_output_folder",
    "list_result_options",
    "move_output_beside",
]

_MAX_SLUG_LENGTH = 60
_DIGEST_LENGTH = 8
"""Digits of the hash in a run id. The journal has the whole hash, so a collision is noticed."""


def get_output_folder(spec: RunSpec) -> Path:
    """Return `--output_path` (a folder, or the folder of a `.json` file), or `./assay-runs`."""
    if spec.output_path is None:
        return Path("assay-runs")
    path = Path(spec.output_path).expanduser()
    return path.parent if path.suffix == ".json" else path


def move_output_beside(spec: RunSpec, folder: Path) -> RunSpec:
    """Write result files beside the folder of the run, which may have been moved."""
    if spec.output_path is None or get_output_folder(spec).resolve() == folder.resolve().parent:
        return spec
    path = Path(spec.output_path)
    moved = folder.parent / path.name if path.suffix == ".json" else folder.parent
    return replace(spec, output_path=str(moved))


def list_result_options(spec: RunSpec) -> dict[str, Any]:
    """Return the options that affect prompts, answers and scores. Tasks and models enter by content, not by name."""
    named = ("tasks", "model", "model_args", "judge", "judge_args", "user")
    return {key: value for key, value in spec.shape().items() if key not in named}


def compute_task_digests(spec: RunSpec, task_spec: TaskSpec, task: Task) -> dict[str, str]:
    """Hash a task as a run uses it: the file with its helpers, the data, and both with the options."""
    config, data = digest_spec(task_spec), digest_data(task)
    mode = {} if task_spec.tools is None else {"tool_calls": task.tool_syntax or "native"}
    whole = digest_json({"spec": config, "data": data, "shape": list_result_options(spec), **mode})
    return {"digest": whole, "config_digest": config, "data_digest": data}


def compute_run_digest(
    spec: RunSpec,
    identity: Mapping[str, str],
    tasks: Mapping[str, str],
    judges: Mapping[str, Mapping[str, str]],
) -> str:
    """Hash a run: the same for the same work, so that repeating a command finds its run."""
    parts: dict[str, Any] = {
        "identity": dict(identity),
        "shape": list_result_options(spec),
        "tasks": dict(tasks),
        "assay": assay_version(),  # a corrected metric must change the numbers
    }
    if judges:
        parts["judges"] = {name: dict(facts) for name, facts in judges.items()}
    return digest_json(parts)


def build_run_name(spec: RunSpec, model: str, digest: str) -> str:
    """Build a readable name: `--name`, or the model, the first task and the number of others; then the start of the hash.

    `embedded-mme-and-1-more-0a1b2c3d`

    A run with `--token_logprobs` has the same hash and its own folder, because a run without them has no tokens to show.
    """
    more = ""
    if spec.name:
        slug = _to_slug(spec.name)
    else:
        words = [model, sorted(spec.tasks)[0].rstrip("/").removesuffix(".yaml")]
        slug = "-".join(_to_slug(word.rpartition("/")[2]) for word in words)
        more = f"-and-{len(spec.tasks) - 1}-more" if len(spec.tasks) > 1 else ""
    slug = slug[: _MAX_SLUG_LENGTH - len(more)].rstrip("-")
    return f"{slug}{more}-{digest[:_DIGEST_LENGTH]}{'-tokens' if spec.token_logprobs else ''}"


def _to_slug(text: str) -> str:
    """Return a text as part of a folder name; a name without any letter or digit is `run`."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "run"
