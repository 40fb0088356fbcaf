"""What a journal says of its run, so that it can be shown, exported and repeated without the task files."""

from __future__ import annotations

import inspect
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from assay.core.codec import to_plain
from assay.engine.plan import Plan, PlannedTask
from assay.tasks.functions import HelperFunction

__all__ = ["facts_of"]

_HIDDEN = ("api_key", "token", "auth_token", "password", "secret", "header")


def facts_of(plan: Plan) -> dict[str, Any]:
    """Options, plan, identity, versions; secrets removed."""
    spec = asdict(plan.spec)
    spec["model_args"] = without_secrets(spec["model_args"])
    return {
        "run_id": plan.run_id,
        "model": plan.model.name,
        "spec": to_plain(spec),
        "identity": dict(plan.identity),
        "top": list(plan.top),
        "tasks": {name: _task_facts(planned) for name, planned in plan.tasks.items()},
        "groups": {
            name: {"alias": group.alias, "members": list(group.members), "version": str(group.version)}
            for name, group in plan.groups.items()
        },
        "assay_version": assay_version(),
        "python_version": platform.python_version(),
        "platform": platform.platform(),
        "started": time.time(),
    }


def without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with the values of keys that smell of secrets removed.

    >>> without_secrets({"model": "x", "api_key": "sk-1"})
    {'model': 'x', 'api_key': '***'}
    """
    return {
        key: "***" if any(word in key.lower() for word in _HIDDEN) else value
        for key, value in arguments.items()
    }


def assay_version() -> str:
    """The installed version."""
    try:
        return version("assay")
    except PackageNotFoundError:
        return "unknown"


def _task_facts(planned: PlannedTask) -> dict[str, Any]:
    task, spec = planned.task, planned.spec
    return {
        "alias": spec.alias,
        "path": spec.path,
        "output_type": spec.output_type,
        "version": spec.version,
        "n_shot": spec.metadata.get("num_fewshot", task.num_fewshot),
        "documents": planned.documents,
        "original": len(task.rows),
        "digest": planned.digest,
        "metrics": list(planned.scorer.metrics),
        "pipelines": [pipeline.name for pipeline in planned.scorer.pipelines],
        "config": {key: _shown(value) for key, value in spec.config.items() if value is not None},
    }


def _shown(value: Any) -> Any:
    """A config value as JSON; functions as their source."""
    if isinstance(value, HelperFunction):
        try:
            return inspect.getsource(value.load())
        except (OSError, TypeError):
            return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    return to_plain(value)
