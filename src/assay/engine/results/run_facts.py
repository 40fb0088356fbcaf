"""Collect what the journal records about its run, so that it can be shown and exported without the task files."""

from __future__ import annotations

import inspect
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.installation import assay_version
from assay.core.options.parsing import parse_arguments
from assay.core.options.run_spec import RunSpec
from assay.core.records.codec import to_plain
from assay.core.records.specs import TaskSpec
from assay.core.secrets import (
    redact_assignments,
    redact_fields,
    register_environment_secrets,
    register_secrets_in,
)
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.running.cost_ledger import get_billing_name
from assay.engine.running.probe_calls import compute_probe_cost, count_probe_calls
from assay.models.prices import load_prices
from assay.scoring.pipelines import Pipeline
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.letter_choices import asks_for_letters
from assay.tasks.task import Task
from assay.tasks.variants.expansion import find_family
from assay.tasks.variants.variant_task import describe_variant

__all__ = [
    "collect_facts",
    "describe_group",
    "describe_sandbox",
    "describe_start",
    "get_num_fewshot",
    "redact_options",
    "register_secrets",
]


def collect_facts(plan: Plan) -> dict[str, Any]:
    """Return options, plan, identity and versions, with secrets redacted."""
    return {
        "run_id": plan.run_id,
        "digest": plan.digest,
        "model": plan.model.name,
        "spec": redact_options(plan.spec),
        "identity": dict(plan.identity),
        "judges": {name: dict(judge.identity) for name, judge in plan.judges.items()},
        "billing": describe_billing(plan),
        "probe_calls": _count_probe_calls(plan),
        **_describe_probe_costs(plan),
        "top": list(plan.top),
        "tasks": {name: _describe_task(planned) for name, planned in plan.tasks.items()},
        "groups": {
            name: {
                "alias": group.alias,
                "members": list(group.members),
                "version": str(group.version),
                **({"is_family": True} if group.is_family else {}),
                "filtered_metrics": [one.metric for one in group.metrics if one.filter_list is not None],
                **describe_group(
                    [plan.tasks[task] for task in group.members if task in plan.tasks],
                    group.metadata if plan.spec.num_fewshot is None else None,
                ),
            }
            for name, group in plan.groups.items()
        },
        **describe_sandbox(plan),
        **({"lock": {key: plan.lock[key] for key in ("file", "digest", "drift")}} if plan.lock else {}),
        "assay_version": assay_version(),
        "python_version": platform.python_version(),
        "platform": platform.platform(),
        "started": time.time(),
    }


def describe_start(plan: Plan) -> dict[str, Any]:
    """Return what sinks get when a run starts, with secrets redacted."""
    return {
        "time": time.time(),
        "run_id": plan.run_id,
        "folder": str(plan.folder),
        "model": plan.model.name,
        "identity": dict(plan.identity),
        "tasks": {name: planned.documents for name, planned in plan.tasks.items()},
        "options": redact_options(plan.spec),
        "assay_version": assay_version(),
    }


def describe_billing(plan: Plan) -> dict[str, Any]:
    """Return billing names and price sources; the model has an empty name, judges their own."""
    prices = load_prices(plan.spec.prices)
    facts = {}
    for name, model in {"": plan.model, **{key: judge.model for key, judge in plan.judges.items()}}.items():
        if billed := get_billing_name(model, prices):
            price = prices.find(billed)
            known = {} if price is None else {"date": price.date, "from": price.where}
            facts[name] = {"billed_as": billed, **known}
    return facts


def _count_probe_calls(plan: Plan) -> dict[str, int]:
    """Return the calls that found out what a server supports; the model has an empty name, judges their own."""
    models = {"": plan.model, **{key: judge.model for key, judge in plan.judges.items()}}
    return {name: count for name, model in models.items() if (count := count_probe_calls(model))}


def _describe_probe_costs(plan: Plan) -> dict[str, Any]:
    """Return the cost in dollars of these calls; empty if they are free."""
    prices = load_prices(plan.spec.prices)
    models = {"": plan.model, **{key: judge.model for key, judge in plan.judges.items()}}
    costs = {name: cost for name, model in models.items() if (cost := compute_probe_cost(model, prices))}
    return {"probe_costs": costs} if costs else {}


def describe_sandbox(plan: Plan) -> dict[str, Any]:
    """Describe the sandbox and its isolation; empty if no program ran."""
    isolation = plan.programs.isolation
    return {} if isolation is None else {"sandbox": isolation.to_json()}


def register_secrets(spec: RunSpec) -> None:
    """Register the keys in the environment and in the options, before anything is written or shown."""
    register_environment_secrets()
    register_secrets_in(asdict(spec))
    for word in (*spec.judge, *spec.user, *spec.sink):
        with suppress(InvalidOption):  # reported by the plan
            register_secrets_in(parse_arguments(word.partition(",")[2]))


def redact_options(spec: RunSpec) -> dict[str, Any]:
    """Return the options with secrets redacted, also inside `--judge`."""
    kept: dict[str, Any] = to_plain(redact_fields(asdict(spec)))
    lists = {
        name: [redact_assignments(word) for word in getattr(spec, name)] for name in ("judge", "user", "sink")
    }
    return {**kept, **lists}


def _describe_variant(task: Task, spec: TaskSpec) -> dict[str, str]:
    assert spec.variant is not None
    return {
        "name": spec.variant.name,
        "of": find_family(spec),
        "description": describe_variant(task, spec.variant),
    }


def _describe_task(planned: PlannedTask) -> dict[str, Any]:
    task, spec = planned.task, planned.spec
    return {
        "alias": spec.alias,
        "path": spec.path,
        "dialect": spec.dialect,
        "output_type": spec.output_type,
        **({"asked_for": "letters"} if asks_for_letters(task) else {}),
        **({"variant": _describe_variant(task, spec)} if spec.variant is not None else {}),
        "version": spec.version,
        "n_shot": get_num_fewshot(planned),
        "documents": planned.documents,
        "original": len(task.rows),
        "digest": planned.digest,
        "metrics": list(planned.scorer.metrics),
        "higher_is_better": {name: use.higher_is_better for name, use in planned.scorer.metrics.items()},
        "pipelines": [pipeline.name for pipeline in planned.scorer.pipelines],
        "filters": {pipeline.name: _describe_filters(pipeline) for pipeline in planned.scorer.pipelines},
        "config": {key: _to_json_config(value) for key, value in spec.config.items() if value is not None},
        "used": _describe_used_settings(planned),
    }


def _describe_used_settings(planned: PlannedTask) -> dict[str, Any]:
    """Return the values of keys of the task file that options of the run replace, under the names of the keys."""
    settings = planned.task.settings.values if planned.spec.output_type.generates_text else None
    return {
        "num_fewshot": planned.task.num_fewshot,
        "repeats": planned.spec.repeats,
        **({"generation_kwargs": _to_json_config(dict(settings))} if settings is not None else {}),
    }


def _describe_filters(pipeline: Pipeline) -> dict[str, Any]:
    """Describe the filters of a pipeline: name, arguments, whether they are task code, whether they look across documents."""
    steps = [
        {
            "function": step.name,
            **(
                {"arguments": {key: _to_json_argument(value) for key, value in step.arguments.items()}}
                if step.arguments
                else {}
            ),
            **({"own": True} if step.is_task_code else {}),
            **({} if step.per_document else {"together": True}),
        }
        for step in pipeline.steps
    ]
    return {
        "steps": steps,
        **({"thoughts": [list(pair) for pair in pipeline.reasoning_tags]} if pipeline.reasoning_tags else {}),
        **(
            {"thoughts_first": True}
            if pipeline.reasoning_tags and not pipeline.removes_reasoning_last
            else {}
        ),
    }


def _to_json_argument(value: Any) -> Any:
    """Return an argument of a filter as JSON; a function by its name."""
    named = value.load() if isinstance(value, HelperFunction) else value
    return getattr(named, "__qualname__", None) or to_plain(value) if callable(named) else to_plain(value)


def describe_group(
    members: Sequence[PlannedTask], metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Describe what the direct members of a group share: n-shot, and the direction of each metric.

    `num_fewshot` in the group's `metadata` overrides n-shot.
    """
    shots = {get_num_fewshot(planned) for planned in members}
    if metadata and "num_fewshot" in metadata:
        shots = {metadata["num_fewshot"]}
    directions: dict[str, bool | None] = {}
    for planned in members:
        for metric, use in planned.scorer.metrics.items():
            known = directions.setdefault(metric, use.higher_is_better)
            directions[metric] = known if known == use.higher_is_better else None
    return {"n_shot": shots.pop() if len(shots) == 1 else None, "higher_is_better": directions}


def get_num_fewshot(planned: PlannedTask) -> Any:
    """Return the number of few-shot examples; without any, `metadata.num_fewshot` counts those in the task's own text."""
    return planned.task.num_fewshot or planned.spec.metadata.get("num_fewshot", 0)


def _to_json_config(value: Any) -> Any:
    """Return a config value as JSON; a function as its source."""
    if isinstance(value, HelperFunction):
        try:
            return inspect.getsource(value.load())
        except (OSError, TypeError):
            return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json_config(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json_config(item) for item in value]
    return to_plain(value)
