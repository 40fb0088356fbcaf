"""Write lockfiles, check plans against them, and attach them to runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, LockDrift
from assay.core.options.parsing import group_mirrors
from assay.engine.lockfiles.contents import LockSettings, collect_lock
from assay.engine.lockfiles.lock_diff import compare_locks
from assay.engine.lockfiles.lockfile import Lockfile, parse_lock
from assay.engine.lockfiles.portable_paths import PortablePaths
from assay.engine.planning.manifests.manifest_diff import KINDS, ManifestChange
from assay.engine.planning.records import Plan

__all__ = [
    "ALL_KINDS",
    "LockStatus",
    "attach_lock",
    "check_kinds",
    "check_recorded_lock",
    "compare_plan",
    "make_lock",
    "require_lock",
    "restore_lock",
]

ALL_KINDS = "all"
_DIGEST_LENGTH = 6
"""Digits of the digest of a lockfile in a run id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStatus:
    """A lockfile, what differs from it now, and what could not be checked."""

    file: str
    digest: str
    changes: tuple[ManifestChange, ...]
    unchecked: tuple[str, ...] = ()


def make_lock(plan: Plan, path: Path, prompts: int | None = None) -> tuple[Lockfile, list[str]]:
    """Return the lockfile of a plan, and notes about what it does not contain. Renders every document."""
    mirrors = {
        name: tuple(other for other in others if not PortablePaths.is_path(other))
        for name, others in group_mirrors(plan.spec.mirror).items()
    }
    settings = LockSettings(folder=path.absolute().parent, prompts=prompts, mirrors=mirrors)
    content, notes = collect_lock(plan, settings)
    return Lockfile(content=content, path=path), notes


def compare_plan(plan: Plan, lock: Lockfile) -> list[ManifestChange]:
    """Return what differs between a plan and a lockfile, in the order of `KINDS`."""
    shown = [
        len(first)
        for task in lock.content["tasks"].values()
        if isinstance(first := (task.get("prompts") or {}).get("first"), list)
    ]
    now, _ = make_lock(plan, lock.path, max(shown, default=0))
    changes = compare_locks(lock.content, now.content)
    return sorted(changes, key=lambda change: KINDS.index(change.kind))


def check_kinds(words: Collection[str], where: str) -> frozenset[str]:
    """Return kinds of changes; `all` stands for every kind.

    Raises:
        InvalidOption: A word is not a kind of change.
    """
    if unknown := sorted(set(words) - {*KINDS, ALL_KINDS}):
        raise InvalidOption(
            f"unknown kind of change `{unknown[0]}`",
            where=where,
            hint=f"one of: {', '.join((*KINDS, ALL_KINDS))}",
        )
    return frozenset(KINDS if ALL_KINDS in words else words)


def require_lock(
    plan: Plan, lock: Lockfile, allowed: Collection[str] = ()
) -> tuple[Plan, list[ManifestChange]]:
    """Return the plan with its lockfile, and the differences of allowed kinds.

    Raises:
        LockDrift: The plan differs from the lockfile in another kind.
    """
    changes = compare_plan(plan, lock)
    refused = [change for change in changes if change.kind not in allowed]
    if refused:
        kinds = ",".join(dict.fromkeys(change.kind for change in refused))
        error = LockDrift(
            f"the run differs from the lockfile in {len(refused)} item{'' if len(refused) == 1 else 's'}",
            where=str(lock.path),
            hint=f"restore what changed; or accept it for this run with `--allow_drift {kinds}`,"
            f" or for all later runs with `assay lock --update {lock.path}`",
        )
        error.changes = tuple(changes)
        raise error
    about = {
        "file": lock.path.name,
        "digest": lock.digest,
        "drift": [f"{change.kind}: {change.what}" for change in changes],
        "text": lock.text,
    }
    return attach_lock(plan, about), changes


def attach_lock(plan: Plan, about: Mapping[str, Any]) -> Plan:
    """Return a plan with a lockfile. The run has its own folder: a run without a lockfile does not make its claim."""
    drift = "-drift" if about.get("drift") else ""
    run_id = f"{plan.run_id}-lock-{str(about['digest'])[:_DIGEST_LENGTH]}{drift}"
    return replace(plan, lock=dict(about), run_id=run_id, folder=plan.folder.parent / run_id)


def restore_lock(plan: Plan, manifest: Mapping[str, Any]) -> Plan:
    """Return a plan with the lockfile of a stored run, if it has one."""
    about = manifest.get("lock")
    return attach_lock(plan, about) if isinstance(about, Mapping) else plan


def check_recorded_lock(plan: Plan, manifest: Mapping[str, Any], folder: Path) -> LockStatus | None:
    """Return what differs between a plan and the lockfile in a manifest; None if there is none."""
    about = manifest.get("lock")
    if not isinstance(about, Mapping):
        return None
    lock = parse_lock(str(about.get("text", "")), folder / str(about.get("file", "")))
    changes = compare_plan(plan, lock)
    if lock.digest != about.get("digest"):
        edited = "the lockfile in the manifest does not match its digest: one of them was edited"
        changes.insert(0, ManifestChange(kind="task", what=edited))
    return LockStatus(file=str(about.get("file")), digest=str(about.get("digest")), changes=tuple(changes))
