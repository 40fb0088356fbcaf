"""A gate: may this run pass? Not a number below its floor, not a drop that chance does not explain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.core.errors import BadOption, UnknownName
from assay.core.verdicts import Estimate
from assay.stats.distributions import normal_cdf, t_cdf
from assay.stats.multiple import adjusted
from assay.store.sheets import SheetSource
from assay.viewer.comparison.comparing import compare_sources
from assay.viewer.comparison.records import CompareOptions, Comparison, Row
from assay.viewer.comparison.showing import markdown_table, p_text, remarks, signed
from assay.viewer.exports.junit import Threshold, attribute
from assay.viewer.tables import number

__all__ = ["Check", "Gate", "GateOptions", "judge_gate", "junit_of", "markdown_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What a run must not do."""

    floors: Sequence[Threshold] = ()
    max_drop: float = 0.0
    """How far below the baseline a metric may be: points of a share, percent of any other number."""

    alpha: float = 0.05
    """The chance of stopping a run that is no worse than allowed, over all tasks together."""

    tasks: Sequence[str] = ()
    metrics: Sequence[str] = ()
    cluster_by: str = ""
    correction: str = "holm"

    def __post_init__(self) -> None:
        if self.max_drop < 0:
            raise BadOption("a drop that is allowed is not negative", where="--max_drop")
        if not 0 < self.alpha < 0.5:
            raise BadOption(
                f"an alpha of {self.alpha:g} makes no sense", where="--alpha", hint="0.05 is usual"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    kind: str
    """floor, drop, missing"""

    task: str
    metric: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a gate says, and why."""

    run: str
    baseline: str
    checks: tuple[Check, ...]
    comparison: Comparison | None = None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"passed": self.passed, **asdict(self)}


def judge_gate(run: SheetSource, baseline: SheetSource | None, options: GateOptions) -> Gate:
    """Hold a run against floors and a baseline.

    Raises:
        BadOption: There is nothing to hold it against.
    """
    if baseline is None and not options.floors:
        raise BadOption(
            "a gate needs a baseline or a floor", hint="--baseline RUN, or --min TASK:METRIC=VALUE"
        )
    checks = [_floor(run, floor) for floor in options.floors]
    comparison = None
    if baseline is not None:
        wanted = options.tasks or baseline.tasks
        checks += [
            Check(
                kind="missing", task=task, metric="", passed=False, message=f"{task}: the run lacks this task"
            )
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
        checks += _drops(comparison.rows, options)
    name = "" if baseline is None else baseline.name
    return Gate(run=run.name, baseline=name, checks=tuple(checks), comparison=comparison)


def _floor(run: SheetSource, floor: Threshold) -> Check:
    numbers = run.numbers()
    found = [one for one in numbers if one.task == floor.task and floor.metric in ("", one.metric)]
    if not found:
        known = sorted({f"{one.task}:{one.metric}" for one in numbers})
        raise UnknownName(
            f"the run has no number `{floor.task}{':' if floor.metric else ''}{floor.metric}`",
            where="--min",
            hint=f"it has: {', '.join(known) or 'none'}",
        )
    one = found[0]
    downward = one.higher_is_better is False
    passed = isinstance(one.value, (int, float)) and (
        one.value <= floor.value if downward else one.value >= floor.value
    )
    sign = "<=" if downward else ">="
    message = f"{one.task}: {one.metric} is {number(one.value)}{_error(one)}, wanted {sign} {floor.value:g}"
    return Check(kind="floor", task=one.task, metric=one.metric, passed=passed, message=message)


def _error(estimate: Estimate) -> str:
    return "" if estimate.stderr is None else f" ± {number(estimate.stderr)}"


def _drops(rows: Sequence[Row], options: GateOptions) -> Iterator[Check]:
    chances = [_chance_of_drop(row, _allowed(row, options.max_drop)) for row in rows]
    for row, p_value in zip(rows, adjusted(chances, options.correction), strict=True):
        allowed = _allowed(row, options.max_drop)
        passed = p_value >= options.alpha
        worst = row.low if row.higher_is_better else -row.high
        about = f"{signed(row.difference, row)} [{signed(row.low, row)}, {signed(row.high, row)}]"
        limit = f"a drop of {signed(allowed, row).lstrip('+')} is allowed"
        if not passed:
            said = f"{about}: worse beyond doubt (p {p_text(p_value)}), {limit}"
        elif worst >= -allowed:
            said = f"{about}: {limit}, more is ruled out"
        else:
            said = f"{about}: {limit}, more is neither proven nor ruled out"
        yield Check(
            kind="drop",
            task=row.task,
            metric=row.metric,
            passed=passed,
            message=f"{row.task}: {row.metric} {said}",
        )


def _allowed(row: Row, max_drop: float) -> float:
    return max_drop / 100 * (1.0 if row.share else abs(row.first))


def _chance_of_drop(row: Row, allowed: float) -> float:
    """The one-sided p-value of a drop that is no larger than allowed."""
    gain = row.difference if row.higher_is_better else -row.difference
    if gain >= -allowed:
        return 1.0
    if allowed == 0:
        return row.p_value / 2  # the exact test, of which a drop is one side
    if row.stderr == 0:
        return 0.0
    distance = (gain + allowed) / row.stderr
    few = row.clusters if row.clusters is not None else row.documents
    return t_cdf(distance, few - 1) if few < 1000 and few > 1 else normal_cdf(distance)


def junit_of(gate: Gate) -> str:
    """The checks as JUnit XML, which every CI shows."""
    failures = sum(not check.passed for check in gate.checks)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={attribute(gate.run)}>",
        f'  <testsuite name="gate" tests="{len(gate.checks)}" failures="{failures}" errors="0">',
    ]
    for check in gate.checks:
        name = f"{check.kind} {check.metric}".strip()
        head = f"    <testcase classname={attribute(check.task)} name={attribute(name)}"
        if check.passed:
            lines.append(f"{head}/>")
        else:
            lines += [f"{head}>", f"      <failure message={attribute(check.message)}/>", "    </testcase>"]
    return "\n".join([*lines, "  </testsuite>", "</testsuites>\n"])


def markdown_of(gate: Gate) -> str:
    """A summary for a pull request."""
    against = f" against `{gate.baseline}`" if gate.baseline else ""
    lines = [f"## {'Passed' if gate.passed else 'Stopped'}: `{gate.run}`{against}", ""]
    lines += [f"- {'✅' if check.passed else '❌'} {check.message}" for check in gate.checks]
    if gate.comparison is not None:
        found = gate.comparison
        rows = [*found.rows, *([found.overall] if found.overall else [])]
        lines += ["", markdown_table(found, rows)]
        warnings = [text for kind, text in remarks(found) if kind == "warning"]
        lines += ["", *(f"- ⚠️ {text}" for text in warnings)] if warnings else []
    return "\n".join(lines) + "\n"
