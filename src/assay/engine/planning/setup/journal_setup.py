"""Open the journal of a plan for writing and record what is known before the first request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from assay.core.errors import AssayError, CorruptStore
from assay.engine.planning.manifests.manifest import add_continuation, make_manifest, write_manifest
from assay.engine.planning.records import Plan
from assay.engine.results.run_facts import collect_facts
from assay.store.database.locks import RunLock
from assay.store.integrity.repair import move_aside
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.store.runs.run import Run

__all__ = ["find_finished_run", "open_journal"]


def find_finished_run(plan: Plan) -> Run | None:
    """Return the run of a plan if it is finished and `--refresh` is not set."""
    if plan.spec.refresh or not (plan.folder / JOURNAL_FILE).is_file():
        return None
    run = Run(plan.folder)
    try:
        done = run.complete if plan.spec.retry_failed else run.finished
        return run if done and run.facts.get("digest", plan.digest) == plan.digest else None
    except CorruptStore:
        return None  # opening it for writing repairs it
    finally:
        run.close()


def open_journal(plan: Plan, command: Sequence[str] = ()) -> Journal:
    """Open or continue the journal of a plan; the caller closes it.

    Raises:
        RunLocked: Another process is writing it.
        AssayError: The journal belongs to another plan with the same run id.
    """
    if plan.spec.refresh:
        _replace_journal(plan)
    journal = Journal.open_for_writing(plan.folder)
    try:
        known = journal.read_facts()
        _check_same_plan(plan, known)
        facts, manifest = collect_facts(plan), make_manifest(plan, command)
        if isinstance(known.get("manifest"), dict):
            manifest = add_continuation(known["manifest"], manifest)
        started = known.get("started", facts["started"])
        probes = Counter(facts["probe_calls"]) + Counter(known.get("probe_calls", {}))
        now = {
            "manifest": manifest,
            "started": started,
            "refreshed": plan.spec.refresh,
            "probe_calls": dict(probes),
        }
        costs, before = facts.get("probe_costs", {}), known.get("probe_costs", {})
        if costs or before:
            now["probe_costs"] = {
                name: costs.get(name, 0.0) + before.get(name, 0.0) for name in {**before, **costs}
            }
        journal.set_facts({**facts, **now}).result()
        write_manifest(plan.folder, manifest)
    except BaseException:
        journal.close()
        raise
    return journal


def _check_same_plan(plan: Plan, known: dict[str, Any]) -> None:
    """Check the whole hash: a run id contains only 32 bits of it."""
    if known.get("digest", plan.digest) != plan.digest:
        raise AssayError(
            f"run id collision: another run is called `{plan.run_id}`",
            where=str(plan.folder),
            hint="pass another --output_path",
        )


def _replace_journal(plan: Plan) -> None:
    """Move the journal of an earlier run of the plan aside; continue one whose refresh was interrupted."""
    path = plan.folder / JOURNAL_FILE
    if not path.is_file():
        return
    lock = RunLock(plan.folder)
    lock.acquire()
    try:
        run = Run(plan.folder)
        try:
            unfinished = bool(run.facts.get("refreshed")) and not run.finished
        except CorruptStore:
            unfinished = False
        finally:
            run.close()
        if not unfinished:
            move_aside(path, "replaced")
    finally:
        lock.release()
