"""The notes below a table of results: repeats, stop rules, warnings, usage and cost, documents without a score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.core.progress import label_service
from assay.core.records.endings import ENDINGS
from assay.core.records.subsets import STRATIFIED, DocumentSubset
from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.store.runs.usage import UsageTotals
from assay.viewer.number_format import format_dollars, format_float
from assay.viewer.results.variants import format_variant_notes
from assay.viewer.text_tables import Column, TextTable, render_table_text

__all__ = [
    "REPEAT_TITLES",
    "build_repeat_rows",
    "format_group_notes",
    "format_import_notes",
    "format_letter_notes",
    "format_lock",
    "format_notes",
    "format_outcome_notes",
    "format_server_notes",
    "format_subset_notes",
    "format_truncation_notes",
    "format_usage",
    "read_subsets",
]


def format_lock(about: Any) -> str:
    """Return name and digest of the lockfile of a run, and the number of accepted differences; empty without one.

    >>> format_lock({"file": "eval.lock", "digest": "4f6d", "drift": ["versions: …"]})
    'eval.lock 4f6d (accepted differences: 1)'
    """
    if not isinstance(about, Mapping):
        return ""
    accepted = len(about.get("drift") or ())
    return f"{about.get('file')} {about.get('digest')}" + (
        f" (accepted differences: {accepted})" if accepted else ""
    )


def format_notes(run: Run, *, width: int = 10_000, repeats: bool = True) -> list[str]:
    """Return the lines below the table: repeats, stop rules, warnings, and the usage of the model and each judge.

    `width` limits the table of repeats; the other lines are not wrapped. `repeats`: whether to include this table and
    the lines of prompt variants; pages have `build_repeat_rows` and `build_variant_rows`.
    """
    lines = [
        *format_import_notes(run),
        *_format_interval_methods(run),
        *(_format_repeats(run, width) if repeats else ()),
        *(format_variant_notes(run) if repeats else ()),
        *_format_agents(run),
        *_format_variance(run),
        *_format_stop_rules(run),
        *format_subset_notes(run),
        *format_letter_notes(run),
        *format_server_notes(run),
        *format_truncation_notes(run),
        *format_group_notes(run),
    ]
    if run.spent.has_usage:
        usage = format_usage(run.spent, _find_billing(run, ""))
        lines.append(f"model {run.model}: {_count_calls(run, '', run.spent.requests)}; {usage}")
    for name, counts in run.judges.items():
        details = [
            f"{counts[key]} {word}"
            for key, word in (("cached", "from the cache"), ("failed", "failed"))
            if counts[key]
        ]
        line = f"{label_service(name)}: {_count_calls(run, name, counts['requests'])}"
        line += f" ({', '.join(details)})" if details else ""
        spent = run.spent_by_judge.get(name)
        if spent is not None and spent.has_usage:
            line += f"; {format_usage(spent, _find_billing(run, name))}"
        lines.append(line)
    return [*lines, *_format_overspending(run)]


def _format_overspending(run: Run) -> list[str]:
    """Return a note if the run cost more than `--max_cost`."""
    limit = run.facts.get("spec", {}).get("max_cost")
    cost = sum(spent.cost_usd or 0.0 for spent in (run.spent, *run.spent_by_judge.values()))
    cost += sum(run.facts.get("probe_costs", {}).values())
    if limit is None or cost <= limit:
        return []
    over = format_dollars(cost - limit)
    return [f"cost limit exceeded: {format_dollars(cost)} spent, {over} more than --max_cost {limit:g}"]


def _count_calls(run: Run, name: str, requests: int) -> str:
    """Count the requests, and the calls that found out what the server supports, with their cost."""
    probes = run.facts.get("probe_calls", {}).get(name, 0)
    cost = run.facts.get("probe_costs", {}).get(name)
    text = _count_requests(requests)
    if not probes:
        return text
    paid = f" ({format_dollars(cost)} more)" if cost else ""
    return f"{text} and {probes} probe call{'s' if probes != 1 else ''}{paid}"


_COMMON_METHODS = frozenset(("", "wilson", "stratified"))


def _format_interval_methods(run: Run) -> list[str]:
    """Return a line with the methods of the intervals; none if all are Wilson's.

    `95 % intervals: acc: wilson; f1: clustered by passage (30 clusters)`
    """
    found: dict[str, dict[str, list[str]]] = {}
    """Method -> metric -> tasks."""

    for one in run.estimates:
        if one.interval is not None and one.interval_method:
            key = run.tasks.get(one.task, {}).get("config", {}).get("cluster_key")
            named = f" by {key}" if key and one.clusters else ""
            count = f" ({one.clusters} clusters)" if one.clusters else ""
            tasks = found.setdefault(f"{one.interval_method}{named}{count}", {}).setdefault(one.metric, [])
            if one.task not in tasks:
                tasks.append(one.task)
    if all(one.interval_method in _COMMON_METHODS for one in run.estimates):
        return []

    def name_metric(metric: str, tasks: list[str]) -> str:
        if sum(metric in metrics for metrics in found.values()) == 1:
            return metric
        more = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""
        return f"{metric} of {', '.join(tasks[:3])}{more}"

    return [
        "95 % intervals: "
        + "; ".join(
            f"{', '.join(name_metric(*item) for item in metrics.items())}: {method}"
            for method, metrics in found.items()
        )
    ]


def _count_requests(count: int) -> str:
    return f"{count} request{'s' if count != 1 else ''}"


def format_import_notes(run: Run) -> list[str]:
    """Return where an imported run comes from, what its files do not contain, and the notes of the import."""
    if "imported_from" not in run.facts:
        return []
    without = run.tasks_without_documents
    if without and len(without) == len(run.tasks):
        missing = "; the files contain aggregate scores only, no documents"
    elif without:
        names = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
        missing = f"; aggregate scores only, no documents: {names}"
    else:
        missing = ""
    notes = run.facts.get("import_notes", ())
    return [f"imported from {run.facts['imported_from']}{missing}", *map(str, notes)]


def format_subset_notes(run: Run) -> list[str]:
    """Return a line for each task whose documents are a weighted subset.

    `gsm8k: 100 of 1319 documents, weighted; stratified random sample from 5 runs; the score is that of all 1319 documents`
    """
    lines = []
    for task, content in read_subsets(run).items():
        subset = DocumentSubset.from_json(content, where=task)
        count = len(subset.history)
        source = f" from {count} run{'s' if count != 1 else ''}" if subset.method == STRATIFIED else ""
        lines.append(
            f"{task}: {subset.sampled} of {subset.documents} documents, weighted; {subset.method}{source};"
            f" the score is that of all {subset.documents} documents"
        )
    return lines


def read_subsets(run: Run) -> Mapping[str, Any]:
    """Return the weighted subsets of a run by task, as its options store them."""
    found = run.facts.get("spec", {}).get("subset")
    return found if isinstance(found, Mapping) else {}


def format_letter_notes(run: Run) -> list[str]:
    """Return a note on tasks asked with `--mc_as_generation`: their scores are not comparable with log-likelihoods."""
    tasks = [name for name, facts in run.tasks.items() if facts.get("asked_for") == "letters"]
    if not tasks:
        return []
    return [
        f"{', '.join(tasks)}: asked for the letter of a choice (--mc_as_generation);"
        " acc_letter is not comparable with acc from log-likelihoods"
    ]


def format_server_notes(run: Run) -> list[str]:
    """Return a warning for each model whose server reported more than one model name during the run."""
    lines = []
    for judge, names in run.served.items():
        first, *others = names
        if others:
            changed = ", ".join(f"{name} for {names[name]} answers" for name in others)
            model = f"the judge {judge}" if judge else "the model"
            lines.append(f"warning: the server of {model} changed during the run: {first}, then {changed}")
    return lines


def format_truncation_notes(run: Run) -> list[str]:
    """Return a warning for each task whose prompts were shortened because they exceed the context length.

    `warning: gsm8k: 40 of 40 prompts truncated to the context length: 44 of 1248 tokens remain on average`
    """
    lines = []
    for task in run.tasks:
        totals = run.truncated_prompts.get(task)
        if totals is None:
            continue
        kept = totals.input_tokens / totals.requests
        whole = kept + totals.truncated_tokens / totals.requests
        lines.append(
            f"warning: {task}: {totals.requests} of {totals.asked} prompts truncated to the context length:"
            f" {kept:.0f} of {whole:.0f} tokens remain on average"
        )
    return lines


def format_group_notes(run: Run) -> list[str]:
    """Return a warning for each score of a group that some of its tasks do not report.

    `warning: sums: exact_match (none) is missing in 1 of 5 tasks: sums_hard`

    lm-eval warns about every task without a value for the metric and the filter. Two of these cases are intended, and are left out
    here: tasks of other output types than those that report the metric, and tasks that report it with another filter if the group
    names its filters.
    """
    groups = run.facts.get("groups", {})
    values = {(one.task, one.metric, one.pipeline) for one in run.estimates if one.value is not None}
    with_any_filter = {(task, metric) for task, metric, _ in values}
    lines = []
    for one in run.estimates:
        if one.task not in groups:
            continue
        leaves = list(dict.fromkeys(_find_leaves(one.task, groups)))
        missing = [leaf for leaf in leaves if (leaf, one.metric, one.pipeline) not in values]
        kinds = {run.tasks.get(leaf, {}).get("output_type") for leaf in leaves if leaf not in missing}
        names_filters = one.metric in groups[one.task].get("filtered_metrics", ())
        missing = [
            leaf
            for leaf in missing
            if run.tasks.get(leaf, {}).get("output_type") in kinds
            and not (names_filters and (leaf, one.metric) in with_any_filter)
        ]
        if missing and len(missing) < len(leaves):
            names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            lines.append(
                f"warning: {one.task}: {one.metric} ({one.pipeline}) is missing in {len(missing)} of {len(leaves)}"
                f" tasks: {names}"
            )
    return lines


def _find_leaves(group: str, groups: Mapping[str, Any]) -> Iterator[str]:
    for member in groups[group]["members"]:
        if member in groups:
            yield from _find_leaves(member, groups)
        else:
            yield member


def format_usage(spent: UsageTotals, billing: Mapping[str, Any] | None) -> str:
    """Format tokens and cost. An unknown cost is reported; a model without a price list has no cost at all.

    >>> format_usage(UsageTotals(requests=2, input_tokens=900, output_tokens=40), None)
    '900 input tokens, 40 output tokens'
    """
    cached = f" ({spent.cached_tokens} cached by the service)" if spent.cached_tokens else ""
    usage = f"{spent.input_tokens} input tokens{cached}, {spent.output_tokens} output tokens"
    if spent.reasoning_tokens and spent.requests:
        answers = (spent.output_tokens - spent.reasoning_tokens) / spent.requests
        usage += f" (per response: answers {answers:,.0f} tokens, reasoning {spent.reasoning_tokens / spent.requests:,.0f})"
    if billing is None and not spent.priced:
        return usage
    if spent.cost_usd is None:
        return f"{usage}; cost unknown: no price for `{(billing or {}).get('billed_as', '?')}`"
    unpriced = spent.requests - spent.priced
    missing = f" plus {_count_requests(unpriced)} of unknown cost" if unpriced else ""
    date = f" at prices of {billing['date']}" if billing and billing.get("date") else ""
    return f"{usage}; {format_dollars(spent.cost_usd)}{missing}{date}"


def _find_billing(run: Run, name: str) -> Mapping[str, Any] | None:
    billing: Mapping[str, Any] | None = run.facts.get("billing", {}).get(name)
    return billing


def format_outcome_notes(run: Run) -> list[str]:
    """Return a line for each task with unscored documents: how they ended, and the bounds of its scores.

    `sums: 90 scored, 6 truncated, 4 unparsed; with the others all wrong or all right: exact_match between 0.72 and 0.82`
    """
    lines = []
    for task in run.tasks:
        counts = run.outcomes(task)
        if set(counts) <= {"scored", "skipped"}:
            continue
        endings = ", ".join(f"{counts[ending]} {ending}" for ending in ENDINGS if counts.get(ending))
        bounds = "; ".join(
            f"{estimate.metric}{f' ({estimate.pipeline})' if estimate.pipeline != 'none' else ''} between "
            f"{format_float(estimate.bounds[0])} and {format_float(estimate.bounds[1])}"
            for estimate in run.estimates
            if estimate.task == task and estimate.bounds is not None
        )
        condition = "; with the others all wrong or all right: " if bounds else ""
        lines.append(f"{task}: {endings}{condition}{bounds}")
        if counts.get("unparsed-call"):
            lines += _format_unparsed_calls(run, task)
    return lines


def _format_unparsed_calls(run: Run, task: str) -> Iterator[str]:
    """Yield the scores with and without documents that ended as `unparsed-call`, where these differ."""
    unparsed = {document for document, *_ in run.journal.read_outcomes(task, only="unparsed-call")}
    scored: dict[tuple[str, str], list[float]] = {}
    own: dict[tuple[str, str], list[float]] = {}
    for pipeline, metric, document, _, value in run.journal.read_verdicts(task):
        if isinstance(value, (int, float)):
            target = own if document in unparsed else scored
            target.setdefault((pipeline, metric), []).append(float(value))
    left_out, counted = [], []
    for estimate in run.estimates:
        key = (estimate.pipeline, estimate.metric)
        values = scored.get(key, [])
        if estimate.task != task or not values or not isinstance(estimate.value, (int, float)):
            continue
        without = math.fsum(values) / len(values)
        total = math.fsum([*values, *own.get(key, ())]) / (len(values) + len(unparsed))
        name = estimate.metric + (f" ({estimate.pipeline})" if estimate.pipeline != "none" else "")
        if math.isclose(without, total):
            continue
        if key in own and math.isclose(estimate.value, total):
            counted.append(f"{name} {format_float(total)} with them, {format_float(without)} without")
        elif key not in own and math.isclose(estimate.value, without) and _is_worst_at_zero(estimate, values):
            left_out.append(f"{name} {format_float(without)} without them, {format_float(total)} as wrong")
    if left_out:
        yield f"{task}: documents with unparsed calls are not in the score: {'; '.join(left_out)}"
    if counted:
        yield f"{task}: `process_results` scores documents with unparsed calls: {'; '.join(counted)}"


def _is_worst_at_zero(estimate: Estimate, values: Sequence[float]) -> bool:
    """Whether a wrong answer gets 0: higher is better, and the metric is a share."""
    return estimate.higher_is_better is True and all(0 <= value <= 1 for value in values)


# --- stop rules --------------------------------------------------------------------------------------


def _format_stop_rules(run: Run) -> list[str]:
    """Return a line for each task with a `--stop_when` rule: the interval of the score over all its documents."""
    lines = []
    rule = str(run.facts.get("spec", {}).get("stop_when") or "")
    for task, result in run.facts.get("stopped", {}).items():
        asked, total = result["asked"], result["documents"]
        if not result["reached"] or asked == total:
            why = result["why_not"] or f"{rule} was not reached"
            lines.append(f"{task}: asked all {asked} documents: {why}")
            continue
        metric = result["metric"]
        if "gate:" in rule:
            higher = result.get("higher_is_better", True)
            metric = (
                f"{metric} minus the baseline's" if higher else f"the baseline's {metric} minus this run's"
            )
        lines.append(
            f"{task}: {rule} reached after {asked} of {total} documents{_format_clusters(result)} ({total - asked} not asked);"
            f" {metric} over all {total} is between {result['low']:.4f} and {result['high']:.4f} ({100 * result['level']:g} %"
            f" interval by {result.get('method', 'betting')}, adjusted for interim looks)"
        )
    return lines


def _format_clusters(result: Mapping[str, Any]) -> str:
    clusters = result.get("clusters")
    return f" in {result['clusters_asked']} of {clusters} clusters" if clusters else ""


# --- agents ------------------------------------------------------------------------------------------


def _format_agents(run: Run) -> list[str]:
    """Return a line per agent task: how its agents ended, and what a solved task took."""
    lines = []
    for row in run.facts.get("agents") or ():
        ends = ", ".join(f"{count} {end}" for end, count in row["ends"].items())
        line = f"{row['task']}: {row['agents']} agents ({ends}); {row['turns_per_agent']:.1f} turns, "
        line += f"{row['tool_calls'] / row['agents']:.1f} tool calls each"
        line += f", {row['tool_errors']:.0f} tool errors" if row["tool_errors"] else ""
        if row["turns_per_solved"] is not None:
            line += f"; {row['turns_per_solved']:.1f} turns per solved task ({row['metric']})"
        if row["cost_per_solved_usd"] is not None:
            line += f", ${row['cost_per_solved_usd']:.4f} per solved task"
        lines.append(line)
        if unlimited := row.get("limits_without_effect"):
            names = " and ".join(f"`{name}`" for name in unlimited)
            lines.append(f"{row['task']}: {names} had no effect: the responses have no token counts or costs")
    return lines


def _format_variance(run: Run) -> list[str]:
    """Return a line per agent task with the variance components of its first metric."""
    lines, seen = [], set()
    for row in run.facts.get("repeats") or ():
        parts = row.get("components")
        if not parts or row["task"] in seen:
            continue
        seen.add(row["task"])
        shown = [
            f"{name} {parts[name]:.4f}"
            for name in ("task", "agent", "user", "judge")
            if parts[name] is not None
        ]
        line = f"{row['task']}: variance of {row['metric']}: {', '.join(shown)}"
        if parts["includes"]:
            line += f" (agent includes {' and '.join(parts['includes'])})"
        lines.append(line)
    return lines


# --- repeats -----------------------------------------------------------------------------------------

_REPEAT_COLUMNS = (
    Column(title="repeats", wrap=True),
    Column(title="filter", wrap=True, fold=2, folded="filter {}", omit=frozenset({"none"})),
    Column(title="metric", wrap=True),
    Column(title="answers", justify="right"),
    Column(title="mean ± stderr", justify="right"),
    Column(title="between", justify="right", fold=4, folded="variance between documents {}"),
    Column(title="within", justify="right", fold=3, folded="variance within documents {}"),
    Column(title="pass@k", justify="right", fold=1, folded="pass@k {}"),
    Column(title="pass^k", justify="right", fold=1, folded="pass^k {}"),
    Column(title="maj@k", justify="right", fold=1, folded="maj@k {}"),
    Column(title="consistency", justify="right", fold=2, folded="consistency {}"),
)
REPEAT_TITLES = tuple(column.title for column in _REPEAT_COLUMNS)
"""The columns of the table of repeated answers; the first three are texts."""


def _format_repeats(run: Run, width: int) -> list[str]:
    """Return a table of the repeated answers, one line per task, filter and metric; empty without repeats."""
    rows = build_repeat_rows(run)
    if not rows:
        return []
    from rich.markup import escape

    table = TextTable(columns=_REPEAT_COLUMNS)
    for row in rows:
        table.add_row(*map(escape, row[:3]), *row[3:])
    return [line for line in render_table_text(table, width=width).splitlines() if line]


def build_repeat_rows(run: Run) -> list[tuple[str, ...]]:
    """Return the cells of `REPEAT_TITLES` for each task, filter and metric with repeated answers."""
    found = []
    for row in _merge_equal_rows(run.facts.get("repeats") or []):
        count, numbers = row["repeats"], row["numbers"]
        stderr = numbers["mean"]["stderr"]
        found.append(
            (
                row["task"],
                row["pipeline"],
                row["metric"],
                f"{row['documents']} × {count}",
                _format_cell(numbers["mean"]["value"])
                + (f" ± {_format_cell(stderr)}" if stderr is not None else ""),
                _format_cell(row["between"]),
                _format_cell(row["within"]),
                *(
                    _format_cell(numbers[name]["value"]) if name in numbers else ""
                    for name in (f"pass@{count}", f"pass^{count}", f"maj@{count}", "consistency")
                ),
            )
        )
    return found


def _merge_equal_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge rows that differ only in the filter: those filters score every answer alike and only select differently."""
    merged: list[dict[str, Any]] = []
    for row in rows:
        equal = next((one for one in merged if {**one, "pipeline": ""} == {**row, "pipeline": ""}), None)
        if equal is None:
            merged.append(dict(row))
        else:
            equal["pipeline"] += f", {row['pipeline']}"
    return merged


def _format_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
