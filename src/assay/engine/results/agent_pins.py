"""What agents use and no task file contains: MCP servers and programs. In the manifest, and compared by `verify`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.secrets import redact
from assay.engine.planning.manifests.manifest import write_manifest
from assay.engine.planning.manifests.manifest_diff import ManifestChange
from assay.engine.planning.records import Plan, PlannedTask
from assay.store.journal.journal import Journal

__all__ = ["compare_agent_pins", "record_agent_pins"]

Pins = Mapping[str, Any]


def record_agent_pins(plan: Plan, journal: Journal) -> None:
    """Add what the agents of a run pinned to its manifest, if they pinned anything."""
    found = {
        name: known[0]
        for name, planned in plan.tasks.items()
        if planned.spec.agent is not None and (known := journal.read_agent_pins(name))
    }
    manifest = journal.read_facts().get("manifest") if found else None
    if not isinstance(manifest, dict):
        return
    tasks = dict(manifest.get("tasks", {}))
    for name, pins in found.items():
        tasks[name] = {**tasks.get(name, {}), "agent": pins}
    changed = {**manifest, "tasks": tasks}
    if changed != manifest:
        journal.set_facts({"manifest": changed}).result()
        write_manifest(plan.folder, changed)


def compare_agent_pins(plan: Plan, manifest: Pins) -> tuple[list[ManifestChange], list[str]]:
    """Return what changed in the MCP servers and programs of agents, and what could not be checked.

    Starts the MCP servers as a run does, and lists their tools. Calls none.
    """
    changes: list[ManifestChange] = []
    unchecked: list[str] = []
    for name, planned in plan.tasks.items():
        then = manifest.get("tasks", {}).get(name, {}).get("agent")
        if not then or planned.spec.agent is None:
            continue
        try:
            changes += _compare(name, then, _describe_now(planned))
        except AssayError as problem:
            unchecked.append(f"the servers and programs of {name}: {redact(problem.what)}")
    return changes, unchecked


def _describe_now(planned: PlannedTask) -> Pins:
    """Return the pins of the task as it is now. Its environment is opened for an empty document."""
    from assay.agents.environments import ENVIRONMENTS  # few runs have agents
    from assay.agents.external.external_session import describe_program
    from assay.agents.tools import EnvironmentContext, SupportsPins

    agent = planned.spec.agent
    assert agent is not None
    if agent.is_external:
        return describe_program(agent)
    if not isinstance(agent.environment, str):
        raise AssayError("the environment is a class of the task")
    with tempfile.TemporaryDirectory(prefix="assay-pins-") as folder:
        options = {
            key: value for key, value in agent.environment_options.items() if key not in ("checks", "setup")
        }
        context = EnvironmentContext(
            document={}, repeat=0, seed=0, folder=Path(folder), options={**options, "tools": []}
        )
        environment = ENVIRONMENTS.get(agent.environment)(context)
        try:
            return environment.describe_pins() if isinstance(environment, SupportsPins) else {}
        finally:
            environment.close()


def _compare(task: str, then: Pins, now: Pins) -> list[ManifestChange]:
    changes = []
    for server in sorted({*then.get("mcp", {}), *now.get("mcp", {})}):
        old, new = then.get("mcp", {}).get(server), now.get("mcp", {}).get(server)
        if old is None or new is None:
            state = "new" if old is None else "gone"
            changes.append(ManifestChange(kind="tools", what=f"{task}: the MCP server `{server}` is {state}"))
            continue
        if old["version"] != new["version"]:
            what = f"{task}: the MCP server `{server}` is {new['version']!r}, was {old['version']!r}"
            changes.append(ManifestChange(kind="tools", what=what))
        for tool in sorted({*old["tools"], *new["tools"]}):
            was, is_now = old["tools"].get(tool), new["tools"].get(tool)
            if was != is_now:
                state = "is new" if was is None else "is gone" if is_now is None else "changed its definition"
                what = f"{task}: the tool `{tool}` of the MCP server `{server}` {state}"
                changes.append(ManifestChange(kind="tools", what=what))
    old, new = then.get("program"), now.get("program")
    if old and new and old["files"] != new["files"]:
        changes.append(ManifestChange(kind="tools", what=f"{task}: the files of the external agent changed"))
    return changes
