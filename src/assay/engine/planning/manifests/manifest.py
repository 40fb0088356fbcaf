"""Build the manifest of a run: everything needed to repeat it and to find later changes.

It is stored in the journal and as `manifest.json`. `docs/reference/run-folder.md` describes every key.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from assay.core.fingerprints import digest_bytes, digest_json
from assay.core.ports import SupportsProbing
from assay.core.records.codec import to_plain
from assay.core.records.specs import TaskSpec
from assay.core.secrets import contains_redacted, redact_assignments, redact_values
from assay.engine.planning.manifests.environment import (
    compute_code_digests,
    describe_hardware,
    find_commits,
    list_versions,
)
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.run_facts import redact_options
from assay.tasks.files.helper_functions import HelperFunction, find_functions

__all__ = [
    "FILE_NAME",
    "FORMAT",
    "add_continuation",
    "compute_scoring_digests",
    "describe_dataset",
    "list_helper_digests",
    "make_manifest",
    "write_manifest",
]

FORMAT = 1
FILE_NAME = "manifest.json"
_SEEDS = ("python", "numpy", "torch", "fewshot")


def make_manifest(plan: Plan, command: Sequence[str] = ()) -> dict[str, Any]:
    """Build the manifest of a plan; `command` is the command line."""
    options = redact_options(plan.spec)
    helpers: dict[str, str] = {}
    tasks = {name: _describe_task(planned, helpers) for name, planned in plan.tasks.items()}
    folders = [Path(planned.spec.path).parent for planned in plan.tasks.values() if planned.spec.path]
    manifest = {
        "format": FORMAT,
        "run_id": plan.run_id,
        "digest": plan.digest,
        "created": _now(),
        "command": _redact_command(command),
        "folder": str(Path.cwd()),
        "options": options,
        "hidden": _list_redacted_options(options),
        "versions": list_versions(),
        "code": compute_code_digests(),
        "hardware": describe_hardware(),
        **({"sandbox": isolation.to_json()} if (isolation := plan.programs.isolation) else {}),
        "model": {
            "name": plan.model.name,
            "identity": dict(plan.identity),
            "abilities": sorted(plan.model.traits.abilities),
            **(
                {"server": dict(seen)}
                if isinstance(plan.model, SupportsProbing) and (seen := plan.model.seen)
                else {}
            ),
        },
        "judges": {name: dict(judge.identity) for name, judge in plan.judges.items()},
        "seeds": dict(zip(_SEEDS, plan.spec.seed, strict=False)),
        "commits": find_commits([*folders, *(Path(helper).parent for helper in helpers)]),
        "helpers": helpers,
        **({"lock": dict(plan.lock)} if plan.lock else {}),
        "tasks": tasks,
        "groups": {name: list(group.members) for name, group in plan.groups.items()},
        "continued": [],
    }
    return cast(dict[str, Any], redact_values(manifest))


def add_continuation(known: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a resumed run: the first start, and what differs this time."""
    keys = ("command", "folder", "versions", "code", "hardware", "sandbox", "commits")
    different = {key: now[key] for key in keys if key in now and now[key] != known.get(key)}
    return {**known, "continued": [*known.get("continued", ()), {"at": _now(), **different}]}


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write `manifest.json` with a checksum of itself. Errors are ignored: the journal has the manifest too."""
    content = {**manifest, "check": digest_json(json.loads(json.dumps(manifest)))}
    text = json.dumps(content, indent=2, ensure_ascii=False)
    with suppress(OSError):
        waiting = folder / f"{FILE_NAME}-new"
        waiting.write_text(text + "\n", encoding="utf-8", errors="replace")
        waiting.replace(folder / FILE_NAME)


def _describe_task(planned: PlannedTask, helpers: dict[str, str]) -> dict[str, Any]:
    task, spec = planned.task, planned.spec
    own = list_helper_digests(spec, helpers)
    helpers |= own
    return {
        "path": spec.path,
        "version": spec.version,
        "output_type": spec.output_type,
        "num_fewshot": task.num_fewshot,
        "documents": planned.documents,
        "digest": planned.digest,
        "config": planned.config_digest,
        "helpers": sorted(own),
        "dataset": describe_dataset(planned),
        "settings": to_plain(dict(task.settings.values)),
        **compute_scoring_digests(planned),
    }


def describe_dataset(planned: PlannedTask) -> dict[str, Any]:
    """Describe the dataset without reading it again."""
    spec, task = planned.spec, planned.task
    found: dict[str, Any] = {
        "path": spec.dataset_path,
        "name": spec.dataset_name,
        "split": spec.evaluated_split,
        "documents": len(task.rows),
        "digest": planned.data_digest,
        "revision": spec.dataset_kwargs.get("revision"),
        "mirror": getattr(task, "mirror", "") or None,
    }
    information = getattr(task.rows, "info", None)  # from the `datasets` library
    if information is not None:
        found["version"] = str(information.version) if getattr(information, "version", None) else None
        found["commit"] = _find_hub_commit(getattr(information, "download_checksums", None))
    return {key: value for key, value in found.items() if value is not None}


def _find_hub_commit(checksums: Any) -> str | None:
    """Return the commit in an address such as `hf://datasets/org/name@<commit>/file`."""
    for address in checksums or ():
        commit = str(address).partition("@")[2].partition("/")[0]
        if len(commit) == 40:
            return commit
    return None


def compute_scoring_digests(planned: PlannedTask) -> dict[str, dict[str, str]]:
    """Hash each filter pipeline and metric of a task, so that a change can be named."""
    spec, scorer = planned.spec, planned.scorer
    steps = {pipeline.name: pipeline.steps for pipeline in spec.pipelines}
    filters = {
        pipeline.name: digest_json(
            [
                [_get_name(step.function), dict(step.arguments), _digest_source(made.factory)]
                for step, made in zip(steps.get(pipeline.name, ()), pipeline.steps, strict=False)
            ]
        )
        for pipeline in scorer.pipelines
    }
    listed = {metric.name: metric for metric in spec.metrics}
    metrics = {}
    for name, use in scorer.metrics.items():
        metric = listed.get(name)
        pieces: list[Any] = [name, _digest_source(use.aggregation), use.higher_is_better]
        if metric is not None:
            pieces += [_digest_source(metric.metric), dict(metric.arguments)]
        if spec.process_results is not None:
            pieces.append(_digest_source(spec.process_results))
        metrics[name] = digest_json(pieces)
    return {"filters": filters, "metrics": metrics}


def _get_name(thing: Any) -> str:
    return thing if isinstance(thing, str) else getattr(thing, "__name__", repr(thing))


def _digest_source(thing: Any) -> str:
    """Hash the source file of a function or class; a name stands for itself (its code is in `code`)."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, HelperFunction):
        return thing.digest
    try:
        file = inspect.getsourcefile(inspect.unwrap(thing))
    except (TypeError, ValueError):
        file = None
    module = getattr(thing, "__module__", "")
    if file is None or module.startswith("assay."):
        return f"{module}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    with suppress(OSError):
        return digest_bytes(Path(file).read_bytes())
    return _get_name(thing)


def list_helper_digests(spec: TaskSpec, known: Mapping[str, str]) -> dict[str, str]:
    """Hash every helper file of a task and the Python files beside it; reuse the hashes in `known`."""
    folders = {path.parent.resolve() for function in find_functions(spec.config) if (path := function.path)}
    files = (file for folder in sorted(folders) for file in sorted(folder.glob("*.py")))
    return {str(file): known.get(str(file)) or digest_bytes(file.read_bytes()) for file in files}


def _redact_command(command: Sequence[str]) -> list[str]:
    return [redact_assignments(word) for word in command]


def _list_redacted_options(options: Mapping[str, Any]) -> list[str]:
    """Return the options with redacted values: `model_args.api_key`."""
    return [
        *(
            f"{name}.{key}"
            for name, value in options.items()
            if isinstance(value, Mapping)
            for key, item in value.items()
            if contains_redacted(item)
        ),
        *(
            f"{name} {word}"
            for name in ("judge", "user", "sink")
            for word in options.get(name, ())
            if contains_redacted(word)
        ),
    ]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
