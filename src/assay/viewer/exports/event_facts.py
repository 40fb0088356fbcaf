"""Facts of the events of sinks: the results at the end of a run, and the start of a stored run that is exported."""

from __future__ import annotations

from typing import Any

from assay.core.secrets import redact_fields
from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import build_results

__all__ = ["build_result_facts", "build_stored_start_facts"]


def build_result_facts(run: Run) -> dict[str, Any]:
    """Return the results and scores of a finished run, and the outcomes of its documents."""
    facts: dict[str, Any] = {"results": {}, "numbers": []}
    if run.finished:
        facts["results"] = build_results(run)
        facts["numbers"] = [
            {
                "task": one.task,
                "metric": one.metric,
                "filter": one.pipeline,
                "value": one.value,
                "stderr": one.stderr,
                "interval": one.interval,
                "scored": one.scored,
            }
            for one in run.estimates
        ]
    facts["outcomes"] = {task: run.outcomes(task) for task in run.tasks}
    return facts


def build_stored_start_facts(run: Run) -> dict[str, Any]:
    """Return the facts of the event `run started` for a stored run, without secrets."""
    return {
        "time": run.facts.get("started"),
        "run_id": run.id,
        "folder": str(run.folder),
        "model": run.model,
        "identity": dict(run.facts.get("identity") or {}),
        "tasks": {name: task.get("documents") for name, task in run.tasks.items()},
        "options": redact_fields(run.facts.get("spec") or {}),
        "assay_version": run.facts.get("assay_version"),
    }
