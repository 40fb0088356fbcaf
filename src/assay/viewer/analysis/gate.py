"""`gate`: whether a run passes: no score below its minimum, and no significant drop below the baseline.

If the baseline was run several times, the spread of its scores is the noise floor: a smaller drop is not a regression.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from assay.core.errors import InvalidOption, UnknownName
from assay.core.records.verdicts import Estimate
from assay.stats.comparisons.multiplicity import adjust_p_values
from assay.stats.numerics.distributions import normal_cdf, t_cdf, t_quantile
from assay.store.documents.score_tables import ScoreTableSource
from assay.viewer.analysis.gate_policy import TIERS, GateOptions, GateRule, Tier
from assay.viewer.comparison.comparison_table import (
    collect_remarks,
    format_difference,
    format_markdown_table,
    format_p_value,
)
from assay.viewer.comparison.multiplicity import adjust_comparisons
from assay.viewer.comparison.records import CompareOptions, Comparison, ComparisonRow
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.exports.junit import quote_attribute
from assay.viewer.number_format import format_number

__all__ = [
    "GateCheck",
    "GateOptions",
    "GateResult",
    "compute_drop_p_value",
    "evaluate_gate",
    "learn_noise_floors",
    "to_junit",
    "to_markdown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """The result of one check."""

    kind: str
    """floor, drop, missing, comparable"""

    task: str
    metric: str
    passed: bool
    message: str
    tier: Tier = "must"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The checks of a gate and the comparison behind them."""

    run: str
    baseline: str
    checks: tuple[GateCheck, ...]
    comparison: Comparison | None = None
    strict: bool = False
    """Whether a missed `should` fails the gate too."""

    @property
    def passed(self) -> bool:
        return not any(self.fails(check) for check in self.checks)

    def fails(self, check: GateCheck) -> bool:
        """Whether a check fails the gate."""
        return not check.passed and (check.tier == "must" or (check.tier == "should" and self.strict))

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; infinite and undefined numbers become None."""
        comparison = None if self.comparison is None else self.comparison.as_json()
        return {
            "passed": self.passed,
            "run": self.run,
            "baseline": self.baseline,
            "strict": self.strict,
            "checks": [asdict(check) for check in self.checks],
            "comparison": comparison,
        }


def evaluate_gate(
    run: ScoreTableSource, baselines: Sequence[ScoreTableSource], options: GateOptions
) -> GateResult:
    """Check a run against minimum scores and a baseline; further baselines are repetitions of the first.

    Raises:
        InvalidOption: There is neither a minimum nor a baseline.
        UnknownName: Neither the run nor the baseline has a task or score that an option names.
    """
    if not baselines and not options.has_floors:
        raise InvalidOption(
            "a gate needs a baseline or a minimum score",
            hint="pass --baseline RUN, --min TASK:METRIC=VALUE or --policy FILE",
        )
    _check_task_names(run, baselines, options)
    checks = [*_check_required(run, baselines, options), *_check_patterns(run, baselines, options)]
    for rule in options.floor_rules:
        checks += _check_floors(run, rule)
    comparison = None
    if baselines:
        comparison = _compare(baselines[0], run, options)
    if comparison is not None:
        checks += _check_rule_metrics(comparison.rows, baselines[0], run, options)
        checks += _check_drops(comparison.rows, options, learn_noise_floors(baselines, options.alpha))
    name = baselines[0].name if baselines else ""
    return GateResult(
        run=run.name, baseline=name, checks=tuple(checks), comparison=comparison, strict=options.strict
    )


def _list_task_names(source: ScoreTableSource) -> dict[str, None]:
    """Return the names of tasks and groups with scores."""
    return dict.fromkeys((*source.tasks, *(one.task for one in source.read_estimates())))


def _check_task_names(
    run: ScoreTableSource, baselines: Sequence[ScoreTableSource], options: GateOptions
) -> None:
    known = [name for source in (run, *baselines[:1]) for name in _list_task_names(source)]
    for task in options.tasks:
        if task not in known:
            raise UnknownName(
                f"neither the run nor the baseline has the task `{task}`",
                where="--tasks",
                hint=f"available: {', '.join(dict.fromkeys(known)) or 'none'}",
            )


def _check_patterns(
    run: ScoreTableSource, baselines: Sequence[ScoreTableSource], options: GateOptions
) -> Iterator[GateCheck]:
    """Check that each rule of a policy applies to some task: a misspelt pattern would check nothing."""
    known = [name for source in (run, *baselines[:1]) for name in _list_task_names(source)]
    for rule in options.rules:
        if not rule.task_names and not any(rule.covers(task) for task in known):
            patterns = ", ".join(rule.tasks)
            yield GateCheck(
                kind="missing",
                task=patterns,
                metric=rule.metric,
                passed=False,
                tier=rule.tier,
                message=f"{patterns}: matches no task of the run",
            )


def _check_required(
    run: ScoreTableSource, baselines: Sequence[ScoreTableSource], options: GateOptions
) -> Iterator[GateCheck]:
    """Check that the tasks are there: required ones, those that a policy names, and those of the baseline.

    With a policy, a task of the baseline has the strictest tier of the rules that match it; without one it is watched.
    """
    wanted = [*options.required, *(name for rule in options.rules for name in rule.task_names)]
    if baselines:
        wanted += options.tasks or baselines[0].tasks
    known = _list_task_names(run)
    for task in dict.fromkeys(wanted):
        if task not in known:
            tiers = [rule.tier for rule in options.rules if rule.covers(task)]
            rest: Tier = "watch" if options.rules else "must"
            tier: Tier = "must" if task in options.required else min(tiers, key=TIERS.index, default=rest)
            yield GateCheck(
                kind="missing",
                task=task,
                metric="",
                passed=False,
                tier=tier,
                message=f"{task}: not in the run",
            )
        elif task in options.required:
            yield GateCheck(kind="missing", task=task, metric="", passed=True, message=f"{task}: in the run")


def _check_floors(run: ScoreTableSource, rule: GateRule) -> Iterator[GateCheck]:
    """Check the scores that belong to a rule with a minimum."""
    numbers = run.read_estimates()
    firsts: dict[str, Estimate] = {}
    for one in numbers:
        firsts.setdefault(one.task, one)
    found: dict[str, Estimate] = {}
    for one in numbers:
        if rule.matches(one.task, one.metric, first=firsts[one.task] is one):
            found.setdefault(one.task, one)
    if not found and rule.where.startswith("--"):
        known = sorted({f"{one.task}:{one.metric}" for one in numbers})
        name = f"{rule.tasks[0]}{':' if rule.metric else ''}{rule.metric}"
        raise UnknownName(
            f"the run has no score `{name}`", where=rule.where, hint=f"it has: {', '.join(known) or 'none'}"
        )
    covered = [task for task in _list_task_names(run) if rule.covers(task)]
    # a pattern may match tasks that do not have the metric, but not only such tasks
    for task in [task for task in covered if task not in found and (not found or task in rule.task_names)]:
        message = f"{task}: no score {rule.metric or 'in the run'}"
        yield GateCheck(
            kind="missing", task=task, metric=rule.metric, passed=False, tier=rule.tier, message=message
        )
    for one in found.values():
        if rule.min is not None:
            yield _check_interval(one, rule.min, rule.tier)
        if rule.min_point is not None:
            yield _check_point(one, rule.min_point, rule.tier)


def _check_interval(one: Estimate, floor: float, tier: Tier) -> GateCheck:
    """Check the bound of the interval on the side that matters: a score that may be too low by chance does not pass."""
    downward = one.higher_is_better is False
    sign, side = ("<=", "upper") if downward else (">=", "lower")
    interval, passed = one.interval, False
    if interval is None:
        text = f"{format_number(one.value)} without an interval; use --min_point to check the score itself"
    else:
        passed = interval[1] <= floor if downward else interval[0] >= floor
        shown = f"[{format_number(interval[0])}, {format_number(interval[1])}]"
        text = f"{format_number(one.value)} {shown}, {side} bound required {sign} {floor:g}"
    message = f"{one.task}: {one.metric} is {text}"
    return GateCheck(
        kind="floor", task=one.task, metric=one.metric, passed=passed, tier=tier, message=message
    )


def _check_point(one: Estimate, floor: float, tier: Tier) -> GateCheck:
    downward = one.higher_is_better is False
    passed = isinstance(one.value, (int, float)) and (one.value <= floor if downward else one.value >= floor)
    sign = "<=" if downward else ">="
    stderr = "" if one.stderr is None else f" ± {format_number(one.stderr)}"
    message = f"{one.task}: {one.metric} is {format_number(one.value)}{stderr}, required {sign} {floor:g}"
    return GateCheck(
        kind="floor", task=one.task, metric=one.metric, passed=passed, tier=tier, message=message
    )


def _compare(baseline: ScoreTableSource, run: ScoreTableSource, options: GateOptions) -> Comparison | None:
    """Compare the first metric of each task, and the metrics that options and rules name; None if the run has no such task."""
    known = _list_task_names(run)
    tasks = [task for task in options.tasks if task in known]
    if options.tasks and not tasks:
        return None
    common = CompareOptions(
        tasks=tasks,
        metrics=options.metrics,
        cluster_by=options.cluster_by,
        correction=options.correction,
        level=1 - options.alpha,
        # the run is the candidate: its weights, dtype and quantisation are what the gate checks
        allow=[*options.allow, "identity"],
    )
    found = compare_sources(baseline, run, common)
    rows = {(row.task, row.pipeline, row.metric): row for row in found.rows}
    for rule in options.rules:
        if rule.limits_drop and rule.metric:
            tasks = [
                task
                for task in baseline.tasks
                if task in run.tasks and rule.matches(task, rule.metric, first=False)
            ]
            if tasks:
                try:
                    more = compare_sources(baseline, run, replace(common, tasks=tasks, metrics=[rule.metric]))
                except UnknownName:  # `_check_rule_metrics` reports it with the tier of the rule
                    continue
                rows |= {(row.task, row.pipeline, row.metric): row for row in more.rows}
    return adjust_comparisons([replace(found, rows=tuple(rows.values()))])[0]


def _check_rule_metrics(
    rows: Sequence[ComparisonRow], baseline: ScoreTableSource, run: ScoreTableSource, options: GateOptions
) -> Iterator[GateCheck]:
    """Check that tasks have the metrics whose drop a rule limits."""
    compared = {(row.task, row.metric) for row in rows}
    for rule in options.rules:
        if not rule.limits_drop or not rule.metric:
            continue
        covered = [task for task in baseline.tasks if task in run.tasks and rule.covers(task)]
        lacking = [task for task in covered if (task, rule.metric) not in compared]
        # a pattern may match tasks that do not have the metric, but not only such tasks
        named = (
            lacking if len(lacking) == len(covered) else [one for one in lacking if one in rule.task_names]
        )
        for task in named:
            yield GateCheck(
                kind="missing",
                task=task,
                metric=rule.metric,
                passed=False,
                tier=rule.tier,
                message=f"{task}: no score {rule.metric} to compare with the baseline",
            )


def learn_noise_floors(
    baselines: Sequence[ScoreTableSource], alpha: float
) -> dict[tuple[str, str, str], float]:
    """Return (task, pipeline, metric) -> the drop that one more run of the baseline exceeds with probability `alpha`.

    The floor follows from the spread of the scores of repeated runs: t × s × √2 for the difference of two runs.
    """
    if len(baselines) < 2:
        return {}
    values: dict[tuple[str, str, str], list[float]] = {}
    for source in baselines:
        for one in source.read_estimates():
            if isinstance(one.value, (int, float)) and math.isfinite(one.value):
                values.setdefault((one.task, one.pipeline, one.metric), []).append(float(one.value))
    return {
        key: t_quantile(1 - alpha, len(listed) - 1) * float(np.std(listed, ddof=1)) * math.sqrt(2)
        for key, listed in values.items()
        if len(listed) > 1
    }


def _check_drops(
    rows: Sequence[ComparisonRow], options: GateOptions, noise: dict[tuple[str, str, str], float]
) -> Iterator[GateCheck]:
    firsts = {row.task: row.metric for row in reversed(rows)}
    rules = [_find_rule(row, options.drop_rules, first=firsts[row.task] == row.metric) for row in rows]
    for row, rule in zip(rows, rules, strict=True):
        if row.blocked:
            kinds = ", ".join(row.blocked)
            yield GateCheck(
                kind="comparable",
                task=row.task,
                metric=row.metric,
                passed=False,
                tier=rule.tier,
                message=f"{row.task}: {row.metric} is not comparable with the baseline: {kinds}"
                f" (--allow_mismatch {','.join(row.blocked)} accepts that)",
            )
    checked = [(row, rule) for row, rule in zip(rows, rules, strict=True) if not row.blocked]
    limits = [
        (_compute_allowed_drop(row, rule), noise.get((row.task, row.pipeline, row.metric), 0.0))
        for row, rule in checked
    ]
    chances = [compute_drop_p_value(row, max(limit)) for (row, _), limit in zip(checked, limits, strict=True)]
    adjusted = adjust_p_values(chances, options.correction)
    for (row, rule), limit, p_value in zip(checked, limits, adjusted, strict=True):
        passed = p_value >= options.alpha
        message = f"{row.task}: {row.metric} {_describe_drop(row, limit, p_value, passed=passed)}"
        yield GateCheck(
            kind="drop", task=row.task, metric=row.metric, passed=passed, tier=rule.tier, message=message
        )


def _find_rule(row: ComparisonRow, rules: Sequence[GateRule], *, first: bool) -> GateRule:
    return next((rule for rule in rules if rule.matches(row.task, row.metric, first=first)), rules[-1])


def _describe_drop(row: ComparisonRow, limit: tuple[float, float], p_value: float, *, passed: bool) -> str:
    allowed, noise = limit
    worst = row.low if row.higher_is_better else -row.high
    shown = [format_difference(value, row) for value in (row.difference, row.low, row.high)]
    text = f"{shown[0]} [{shown[1]}, {shown[2]}]"
    said = f"a drop of {format_difference(max(limit), row).lstrip('+')} is allowed"
    if noise > allowed:
        said += " (noise of repeated baselines)"
    if not passed:
        return f"{text}: significantly worse (p {format_p_value(p_value)}), {said}"
    if worst >= -max(limit):
        return f"{text}: {said}, a larger drop is ruled out"
    return f"{text}: {said}, a larger drop is neither significant nor ruled out"


def _compute_allowed_drop(row: ComparisonRow, rule: GateRule) -> float:
    """Return the allowed drop in the unit of the metric: the smaller one if a rule has two."""
    found = []
    if rule.max_drop is not None:
        found.append(rule.max_drop / 100 * (1.0 if row.share else abs(row.first)))
    if rule.max_relative_drop is not None:
        found.append(rule.max_relative_drop / 100 * abs(row.first))
    return min(found, default=0.0)


def compute_drop_p_value(row: ComparisonRow, allowed: float) -> float:
    """Return the one-sided p-value of a drop larger than allowed."""
    gain = row.difference if row.higher_is_better else -row.difference
    if gain >= -allowed:
        return 1.0
    if allowed == 0:
        return row.p_value / 2  # one side of the exact test
    if row.stderr == 0:
        return 0.0
    distance = (gain + allowed) / row.stderr
    few = row.clusters if row.clusters is not None else row.documents
    return t_cdf(distance, few - 1) if few < 1000 and few > 1 else normal_cdf(distance)


def to_junit(gate: GateResult) -> str:
    """Return the checks as JUnit XML for CI systems; a missed check that does not fail the gate is skipped."""
    failures = sum(gate.fails(check) for check in gate.checks)
    skipped = sum(not check.passed for check in gate.checks) - failures
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={quote_attribute(gate.run)}>",
        f'  <testsuite name="gate" tests="{len(gate.checks)}" failures="{failures}" errors="0" skipped="{skipped}">',
    ]
    for check in gate.checks:
        name = f"{check.kind} {check.metric}".strip()
        head = f"    <testcase classname={quote_attribute(check.task)} name={quote_attribute(name)}"
        message = quote_attribute(f"{check.tier}: {check.message}" if check.tier != "must" else check.message)
        if check.passed:
            lines.append(f"{head}/>")
        else:
            element = "failure" if gate.fails(check) else "skipped"
            lines += [f"{head}>", f"      <{element} message={message}/>", "    </testcase>"]
    return "\n".join([*lines, "  </testsuite>", "</testsuites>\n"])


_SIGNS = {"must": "❌", "should": "⚠️", "watch": "👁"}


def to_markdown(gate: GateResult) -> str:
    """Return a Markdown summary for a pull request."""
    baseline = f" compared with `{gate.baseline}`" if gate.baseline else ""
    lines = [f"## {'Passed' if gate.passed else 'Failed'}: `{gate.run}`{baseline}", ""]
    for check in gate.checks:
        sign = "✅" if check.passed else "❌" if gate.fails(check) else _SIGNS[check.tier]
        tier = "" if check.tier == "must" else f"{check.tier}: "
        lines.append(f"- {sign} {tier}{check.message}")
    if gate.comparison is not None:
        found = gate.comparison
        rows = [*found.rows, *([found.overall] if found.overall else [])]
        lines += ["", format_markdown_table(found, rows)]
        warnings = [text for kind, text in collect_remarks(found) if kind == "warning"]
        lines += ["", *(f"- ⚠️ {text}" for text in warnings)] if warnings else []
    return "\n".join(lines) + "\n"
