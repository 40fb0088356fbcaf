"""What an agent left behind: the final state, how it differs from the first and the expected one, and the checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Protocol, TypeVar

from assay.agents.tools import (
    CheckReport,
    Environment,
    SupportsChanges,
    SupportsChecks,
    SupportsExpectedOutputs,
    SupportsExpectedState,
)
from assay.core.fingerprints import canonical_json
from assay.core.records.agents import AgentResult, compare_states, digest_state
from assay.core.secrets import redact

__all__ = ["RunEnvironment", "examine_environment", "read_state"]

T = TypeVar("T")

MAX_STATE_CHARACTERS = 200_000
"""Larger states are stored as a hash."""

MAX_CHANGES = 200
MAX_REASON_CHARACTERS = 2_000


class RunEnvironment(Protocol):
    """Runs code of an environment; the name says in messages what it did."""

    def __call__(self, function: Callable[[], T], what: str) -> T:
        """Return what the function returns."""
        ...


def read_state(environment: Environment, run: RunEnvironment) -> Any:
    """Return the state for the journal: only its hash if it is too large."""
    text = run(lambda: canonical_json(environment.state()), "state")
    state = json.loads(text)  # a copy: the environment changes its own
    if len(text) > MAX_STATE_CHARACTERS:
        return {"digest": digest_state(state), "characters": len(text)}
    return state


def examine_environment(
    environment: Environment, initial: Any, snapshot: str | None, result: AgentResult, run: RunEnvironment
) -> AgentResult:
    """Return the result with the final state, the changes since the first state, the expected state and the checks.

    `initial` comes from `read_state`, and `snapshot` from the environment, both before the agent began.
    """
    text = run(lambda: canonical_json(environment.state()), "state")
    state = json.loads(text)
    is_digest = isinstance(initial, dict) and set(initial) == {"digest", "characters"}
    changes = [] if is_digest else compare_states(initial, state, limit=MAX_CHANGES)
    result = replace(
        result,
        state=state if len(text) <= MAX_STATE_CHARACTERS else None,
        state_digest=digest_state(state),
        changes=tuple(asdict(change) for change in changes),
    )
    if isinstance(environment, SupportsChanges) and snapshot is not None:
        describe = environment.describe_changes
        result = replace(result, diff=redact(run(lambda: describe(snapshot), "describe_changes")))
    if isinstance(environment, SupportsChecks):
        checks = run(environment.checks, "checks")
        reports = {name: value for name, value in checks.items() if isinstance(value, CheckReport)}
        scores = {
            str(name): float(value.score if isinstance(value, CheckReport) else value)
            for name, value in checks.items()
        }
        result = replace(
            result,
            checks=scores,
            check_reports={str(name): _describe_report(report) for name, report in reports.items()},
        )
    if isinstance(environment, SupportsExpectedOutputs):
        outputs = run(environment.expected_outputs, "expected_outputs")
        result = replace(result, expected_outputs=tuple(map(str, outputs)))
    if isinstance(environment, SupportsExpectedState):
        expect = environment.expected_state
        expected = json.loads(run(lambda: canonical_json(expect()), "expected_state"))
        missing = compare_states(expected, state, limit=MAX_CHANGES)
        result = replace(
            result,
            expected_digest=digest_state(expected),
            missing=tuple(asdict(change) for change in missing),
        )
    return result


def _describe_report(report: CheckReport) -> dict[str, Any]:
    """Return a report as JSON. Its texts come from the task or the agent, so they may be long or contain secrets."""
    return {
        "score": float(report.score),
        "reason": redact(str(report.reason))[:MAX_REASON_CHARACTERS],
        "output": redact(str(report.output))[: 2 * MAX_REASON_CHARACTERS],
    }
