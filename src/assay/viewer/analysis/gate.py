"""`gate`: whether a run passes: no score below its minimum, and no significant drop below the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.core.errors import InvalidOption, UnknownName
from assay.core.verdicts import Estimate
from assay.stats.distributions import normal_cdf, t_cdf
from assay.stats.multiplicity import adjust_p_values
from assay.store.documents.score_tables import ScoreTableSource
from assay.viewer.comparison.comparison_table import (
    collect_remarks,
    format_difference,
    format_markdown_table,
    format_p_value,
)
from assay.viewer.comparison.records import CompareOptions, Comparison, ComparisonRow
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.exports.junit import Threshold, quote_attribute
from assay.viewer.number_format import format_number

__all__ = [
    "GateCheck",
    "GateOptions",
    "GateResult",
    "evaluate_gate",
    "to_junit",
    "compute_drop_p_value",
    "to_markdown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The conditions of a gate."""

    floors: Sequence[Threshold] = ()
    max_drop: float = 0.0
    """The allowed drop below the baseline: percentage points for values between 0 and 1, else percent."""

    alpha: float = 0.05
    """The probability of failing a run that is no worse than allowed, over all tasks together."""

    tasks: Sequence[str] = ()
    metrics: Sequence[str] = ()
    cluster_by: str = ""
    correction: str = "holm"

    def __post_init__(self) -> None:
        if self.max_drop < 0:
            raise InvalidOption("the allowed drop is negative", where="--max_drop")
        if not 0 < self.alpha < 0.5:
            raise InvalidOption(
                f"alpha {self.alpha:g} is not between 0 and 0.5",
                where="--alpha",
                hint="use a value such as 0.05",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """The result of one check."""

    kind: str
    """floor, drop, missing"""

    task: str
    metric: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The checks of a gate and the comparison behind them."""

    run: str
    baseline: str
    checks: tuple[GateCheck, ...]
    comparison: Comparison | None = None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"passed": self.passed, **asdict(self)}


def evaluate_gate(
    run: ScoreTableSource, baseline: ScoreTableSource | None, options: GateOptions
) -> GateResult:
    """Check a run against minimum scores and a baseline.

    Raises:
        InvalidOption: There is neither a minimum nor a baseline.
    """
    if baseline is None and not options.floors:
        raise InvalidOption(
            "a gate needs a baseline or a minimum score",
            hint="pass --baseline RUN or --min TASK:METRIC=VALUE",
        )
    checks = [_check_floor(run, floor) for floor in options.floors]
    comparison = None
    if baseline is not None:
        wanted = options.tasks or baseline.tasks
        checks += [
            GateCheck(kind="missing", task=task, metric="", passed=False, message=f"{task}: not in the run")
            for task in wanted
            if task not in run.tasks
        ]
        comparison = compare_sources(
            baseline,
            run,
            CompareOptions(
                tasks=[task for task in options.tasks if task in run.tasks],
                metrics=options.metrics,
                cluster_by=options.cluster_by,
                correction=options.correction,
                level=1 - options.alpha,
            ),
        )
        checks += _check_drops(comparison.rows, options)
    name = "" if baseline is None else baseline.name
    return GateResult(run=run.name, baseline=name, checks=tuple(checks), comparison=comparison)


def _check_floor(run: ScoreTableSource, floor: Threshold) -> GateCheck:
    numbers = run.read_estimates()
    found = [one for one in numbers if one.task == floor.task and floor.metric in ("", one.metric)]
    if not found:
        known = sorted({f"{one.task}:{one.metric}" for one in numbers})
        raise UnknownName(
            f"the run has no score `{floor.task}{':' if floor.metric else ''}{floor.metric}`",
            where="--min",
            hint=f"it has: {', '.join(known) or 'none'}",
        )
    one = found[0]
    downward = one.higher_is_better is False
    passed = isinstance(one.value, (int, float)) and (
        one.value <= floor.value if downward else one.value >= floor.value
    )
    sign = "<=" if downward else ">="
    message = f"{one.task}: {one.metric} is {format_number(one.value)}{_format_stderr(one)}, required {sign} {floor.value:g}"
    return GateCheck(kind="floor", task=one.task, metric=one.metric, passed=passed, message=message)


def _format_stderr(estimate: Estimate) -> str:
    return "" if estimate.stderr is None else f" ± {format_number(estimate.stderr)}"


def _check_drops(rows: Sequence[ComparisonRow], options: GateOptions) -> Iterator[GateCheck]:
    chances = [compute_drop_p_value(row, _compute_allowed_drop(row, options.max_drop)) for row in rows]
    for row, p_value in zip(rows, adjust_p_values(chances, options.correction), strict=True):
        allowed = _compute_allowed_drop(row, options.max_drop)
        passed = p_value >= options.alpha
        worst = row.low if row.higher_is_better else -row.high
        interval = f"{format_difference(row.difference, row)} [{format_difference(row.low, row)}, {format_difference(row.high, row)}]"
        limit = f"a drop of {format_difference(allowed, row).lstrip('+')} is allowed"
        if not passed:
            text = f"{interval}: significantly worse (p {format_p_value(p_value)}), {limit}"
        elif worst >= -allowed:
            text = f"{interval}: {limit}, a larger drop is ruled out"
        else:
            text = f"{interval}: {limit}, a larger drop is neither significant nor ruled out"
        yield GateCheck(
            kind="drop",
            task=row.task,
            metric=row.metric,
            passed=passed,
            message=f"{row.task}: {row.metric} {text}",
        )


def _compute_allowed_drop(row: ComparisonRow, max_drop: float) -> float:
    return max_drop / 100 * (1.0 if row.share else abs(row.first))


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
    """Return the checks as JUnit XML for CI systems."""
    failures = sum(not check.passed for check in gate.checks)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={quote_attribute(gate.run)}>",
        f'  <testsuite name="gate" tests="{len(gate.checks)}" failures="{failures}" errors="0">',
    ]
    for check in gate.checks:
        name = f"{check.kind} {check.metric}".strip()
        head = f"    <testcase classname={quote_attribute(check.task)} name={quote_attribute(name)}"
        if check.passed:
            lines.append(f"{head}/>")
        else:
            lines += [
                f"{head}>",
                f"      <failure message={quote_attribute(check.message)}/>",
                "    </testcase>",
            ]
    return "\n".join([*lines, "  </testsuite>", "</testsuites>\n"])


def to_markdown(gate: GateResult) -> str:
    """Return a Markdown summary for a pull request."""
    baseline = f" compared with `{gate.baseline}`" if gate.baseline else ""
    lines = [f"## {'Passed' if gate.passed else 'Failed'}: `{gate.run}`{baseline}", ""]
    lines += [f"- {'✅' if check.passed else '❌'} {check.message}" for check in gate.checks]
    if gate.comparison is not None:
        found = gate.comparison
        rows = [*found.rows, *([found.overall] if found.overall else [])]
        lines += ["", format_markdown_table(found, rows)]
        warnings = [text for kind, text in collect_remarks(found) if kind == "warning"]
        lines += ["", *(f"- ⚠️ {text}" for text in warnings)] if warnings else []
    return "\n".join(lines) + "\n"
