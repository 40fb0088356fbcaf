"""`assay gate`: fail if a run misses a threshold or is worse than a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import in_option, print_json, split_names
from assay.cli.compare import print_remarks, print_table
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.viewer.analysis.gate import GateCheck, GateResult
    from assay.viewer.analysis.gate_policy import GateOptions

__all__ = ["command"]

_HELP = """Fail if a run misses a threshold or is significantly worse than a baseline.

Exits with code 3 if a check fails. A run is a run id, the start of one, a path, `latest`, or results of lm-eval or
lmms-eval. `--min` compares the lower bound of the 95 % interval, `--min_point` the score. `--max_drop` is the tolerated
drop in points (percent for metrics that are not fractions). A check fails only if the drop is significantly larger, so
that noise does not fail the gate. Repeat `--baseline` with further runs of the same model to learn its noise floor. A
policy file contains rules with tiers: `must` fails the gate, `should` is a warning, `watch` only reports.

\b
Examples:
  assay gate latest --baseline main-run
  assay gate latest --baseline main-run --max_drop 1.0 --alpha 0.01
  assay gate latest --min gsm8k:exact_match=0.7 --min arc_easy=0.6
  assay gate latest --baseline main-run --junit gate.xml --markdown summary.md
  assay gate latest --baseline main-1 --baseline main-2 --baseline main-3
  assay gate latest --policy gate.yaml
"""


@click.command("gate", help=_HELP)
@click.argument("run")
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="RUN",
    help="Baseline run; further ones are repetitions of it, whose spread is the noise floor.",
)
@click.option(
    "--policy", type=click.Path(path_type=Path), metavar="FILE", help="YAML file with rules for tasks."
)
@click.option(
    "--min",
    "floors",
    multiple=True,
    metavar="TASK[:METRIC]=VALUE",
    help="Minimum of the lower bound of the 95 % interval; repeatable.",
)
@click.option(
    "--min_point",
    "point_floors",
    multiple=True,
    metavar="TASK[:METRIC]=VALUE",
    help="Minimum of the score itself; repeatable.",
)
@click.option("--required", multiple=True, metavar="NAMES", help="Tasks that the run must contain.")
@click.option(
    "--max_drop", type=float, default=0.0, metavar="POINTS", help="Tolerated drop in points. [default: 0]"
)
@click.option(
    "--max_relative_drop",
    type=float,
    metavar="PERCENT",
    help="Tolerated drop in percent of the baseline's score.",
)
@click.option(
    "--alpha",
    type=float,
    metavar="SHARE",
    help="Significance level (false positive rate). [default: 0.05]",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAMES",
    help="Metrics to check. [default: the first metric of each task]",
)
@click.option("--cluster_by", default="", metavar="FIELD", help="Cluster documents by this field.")
@click.option(
    "--correction",
    metavar="NAME",
    help="Correction for multiple comparisons: holm, bh or none. [default: holm]",
)
@click.option(
    "--allow_mismatch",
    multiple=True,
    metavar="KINDS",
    help="Compare despite these differences: prompts, judge, scoring, pairing, or all.",
)
@click.option("--strict", is_flag=True, help="Fail the gate if a check of the tier `should` fails.")
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the checks as JUnit XML."
)
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write a summary as Markdown."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    run: str,
    baselines: tuple[str, ...],
    policy: Path | None,
    junit: Path | None,
    markdown: Path | None,
    as_json: bool,
    folders: tuple[str, ...],
    **conditions: Any,
) -> int:
    """Run the command; its help text is above."""
    from assay.viewer.analysis.gate import evaluate_gate, to_junit, to_markdown
    from assay.viewer.comparison.sources import open_source

    options = _build_options(policy, conditions)
    words = [run, *(baselines or options.baselines)]
    sources = [open_source(word, folders) for word in words]
    try:
        gate = evaluate_gate(sources[0], sources[1:], options)
    finally:
        for source in sources:
            source.close()
    for path, text in ((junit, to_junit(gate)), (markdown, to_markdown(gate))):
        if path is not None:
            _write(path, text)
    if as_json:
        print_json(gate.as_json())
    else:
        _print(gate)
    return 0 if gate.passed else 3


def _build_options(policy: Path | None, conditions: dict[str, Any]) -> GateOptions:
    """Return the conditions of the policy file, overridden or extended by flags."""
    from assay.engine.planning.config_files import read_yaml
    from assay.viewer.analysis.gate_policy import GateOptions, parse_policy
    from assay.viewer.exports.junit import parse_threshold

    given = {} if policy is None else parse_policy(read_yaml(policy, "policy"), str(policy))
    required, allow = split_names(conditions["required"]), split_names(conditions["allow_mismatch"])
    single = ("alpha", "correction", "cluster_by", "max_relative_drop")
    return GateOptions(
        **given
        | {name: conditions[name] for name in single if conditions[name]}
        | {
            "floors": [parse_threshold(text, "--min") for text in conditions["floors"]],
            "point_floors": [parse_threshold(text, "--min_point") for text in conditions["point_floors"]],
            "max_drop": conditions["max_drop"],
            "tasks": split_names(conditions["task_names"]),
            "metrics": split_names(conditions["metrics"]),
            "required": [*given.get("required", ()), *required],
            "allow": [*given.get("allow", ()), *allow],
            "strict": conditions["strict"] or given.get("strict", False),
        }
    )


def _write(path: Path, text: str) -> None:
    from assay.core.errors import OutputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the report: {error.strerror}", where=str(path)) from None
    click.echo(escape_control_characters(f"wrote {path}"), err=True)


def _print(gate: GateResult) -> None:
    if gate.comparison is not None:
        overall = gate.comparison.overall
        print_table(gate.comparison, [*gate.comparison.rows, *([overall] if overall else [])])
        print_remarks(gate.comparison)
        click.echo("")
    for check in gate.checks:
        word, colour = ("pass  ", "green") if check.passed else _describe_miss(gate, check)
        click.secho(word, fg=colour, bold=True, nl=False)
        click.echo(escape_control_characters(check.message))
    word, colour = ("passed", "green") if gate.passed else ("failed", "red")
    missed = sum(not check.passed for check in gate.checks)
    click.secho(f"{word}: ", fg=colour, bold=True, nl=False)
    click.echo(f"{len(gate.checks) - missed} of {len(gate.checks)} checks passed")


def _describe_miss(gate: GateResult, check: GateCheck) -> tuple[str, str]:
    if gate.fails(check):
        return "FAIL  ", "red"
    return ("warn  ", "yellow") if check.tier == "should" else ("watch ", "cyan")
