"""Summarise the agents of a run: ends, turns, tool calls and costs, in total and per solved task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from assay.engine.planning.records import Plan, PlannedTask
from assay.store.journal.journal import Journal

__all__ = ["summarise_agents"]

_COUNTS = ("turns", "tool_calls", "tool_errors", "tokens", "user_turns", "seconds")
_COSTS = ("cost_usd", "user_cost_usd")


def summarise_agents(plan: Plan, journal: Journal) -> list[dict[str, Any]]:
    """Return facts about each agent task. A task is solved if its first metric is 1; a mean over repeats counts as a share."""
    facts = []
    for name, planned in plan.tasks.items():
        if not planned.spec.output_type.is_agent:
            continue
        ends: Counter[str] = Counter()
        totals: dict[str, float] = dict.fromkeys((*_COUNTS, *_COSTS), 0.0)
        known_costs: set[str] = set()
        attempts: Counter[int] = Counter()
        for document, _, content in journal.read_agent_ends(name):
            ends[content["end"]] += 1
            attempts[document] += 1
            for key in _COUNTS:
                totals[key] += content.get(key) or 0
            for key in _COSTS:
                if content.get(key) is not None:
                    totals[key] += content[key]
                    known_costs.add(key)
        metric = next(iter(planned.scorer.metrics), "")
        solved = _count_solved(journal, name, metric, planned.scorer.pipelines[0].name, attempts)
        if not attempts:
            continue
        number = attempts.total()
        facts.append(
            {
                "task": name,
                "agents": number,
                "ends": dict(sorted(ends.items())),
                "metric": metric,
                "solved": solved,
                "limits_without_effect": _list_limits_without_effect(planned, totals, known_costs),
                **{key: totals[key] for key in _COUNTS},
                **{key: totals[key] if key in known_costs else None for key in _COSTS},
                "turns_per_agent": totals["turns"] / number,
                "turns_per_solved": totals["turns"] / solved if solved else None,
                "cost_per_solved_usd": _compute_cost_per_solved(totals, known_costs, solved),
            }
        )
    return facts


def _list_limits_without_effect(
    planned: PlannedTask, totals: Mapping[str, float], known_costs: AbstractSet[str]
) -> list[str]:
    """Return the limits that stopped no agent because no response has what they limit."""
    if planned.spec.agent is None or not totals["turns"]:
        return []
    limits, unlimited = planned.spec.agent.limits, []
    if limits.max_tokens is not None and not totals["tokens"]:
        unlimited.append("max_tokens")
    if limits.max_cost is not None and "cost_usd" not in known_costs:
        unlimited.append("max_cost")
    return unlimited


def _count_solved(
    journal: Journal, task: str, metric: str, pipeline: str, attempts: Counter[int]
) -> float | None:
    """Return how many agents solved their task; None if the metric is not between 0 and 1."""
    solved = 0.0
    for own_pipeline, name, document, kind, value in journal.read_verdicts(task):
        if (own_pipeline, name, kind) == (pipeline, metric, "score"):
            if not isinstance(value, (int, float)) or not 0 <= value <= 1:
                return None
            solved += value * attempts[document]
    return solved


def _compute_cost_per_solved(totals: dict[str, float], known: set[str], solved: float | None) -> float | None:
    """Return the cost of the agent and the user for each solved task, failed attempts included."""
    return sum(totals[key] for key in known) / solved if solved and known else None
