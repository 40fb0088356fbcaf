"""`python -m tools.oracle.replay CORPUS --task_root DIR`: repeat recorded evaluations and compare every step."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from assay.core.errors import AssayError
from tools.oracle.bfcl_replay import find_data, read_verdicts, replay_bfcl
from tools.oracle.checks import CHECKS, RecordChecks, count_checks
from tools.oracle.corpus import CorpusError, detect_harness
from tools.oracle.corpus_replay import RecordSelection, replay_in_processes

__all__ = ["main", "run"]

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path, exists=True))
@click.option("--task_root", type=_FOLDER, help="The harness's package, or its task folder; not for BFCL.")
@click.option(
    "--data_root", type=_FOLDER, help="BFCL only: the folder with its dataset, laid out as the hub."
)
@click.option("--family", default="", help="Only tasks below this folder of the task root.")
@click.option(
    "--task", default="", help="Only this task, or the tasks a glob matches; `group:NAME` for a group."
)
@click.option("--every", default=1, type=click.IntRange(1), help="Only every N-th record.")
@click.option(
    "--per_family",
    default=0,
    type=click.IntRange(0),
    help="Only the first N tasks of each family, without groups.",
)
@click.option(
    "--as_version",
    default="",
    help="Undo the documented changes of lm_eval after this version, for example 0.4.8.",
)
@click.option("--jobs", default=0, type=click.IntRange(0), help="Number of processes (default: one per CPU).")
@click.option(
    "--first", "max_printed", default=20, help="Maximum number of differences to print.", show_default=True
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write counts and differences to this file."
)
def main(
    corpus: Path,
    task_root: Path | None,
    data_root: Path | None,
    family: str,
    task: str,
    every: int,
    per_family: int,
    as_version: str,
    jobs: int,
    max_printed: int,
    json_file: Path | None,
) -> None:
    """Replay a recorded corpus and count what is identical. Programs among the recorded responses run in a sandbox."""
    if detect_harness(corpus) == "bfcl":
        _replay_verdicts(corpus, data_root, max_printed, json_file)
        return
    if task_root is None:
        raise AssayError("missing option: --task_root", hint="name the harness's package, or its task folder")
    selection = RecordSelection(
        corpus=corpus,
        task_root=task_root,
        family=family,
        task=task,
        every=every,
        per_family=per_family,
        as_version=as_version,
    )
    records = replay_in_processes(selection, jobs or len(os.sched_getaffinity(0)))
    if not records:
        raise AssayError("no record of the corpus is selected", hint="check --family, --task and --every")
    counts = count_checks(records)
    _print_counts(records, counts, max_printed)
    if json_file is not None:
        json_file.write_text(json.dumps(counts, ensure_ascii=False, indent=1), encoding="utf-8")


def _replay_verdicts(corpus: Path, data_root: Path | None, max_printed: int, json_file: Path | None) -> None:
    """Replay recorded verdicts on function calls."""
    counts = replay_bfcl(read_verdicts(corpus), find_data(corpus, data_root))
    for record in counts.different[:max_printed]:
        said = "valid" if record["valid"] else record["error_type"]
        click.echo(
            f"{record['model']} {record['id']}: {said}; replay: {record['reason'] or 'valid'}", err=True
        )
    totals = counts.to_json()
    for category, numbers in totals["categories"].items():
        click.echo(f"{category:20} {numbers['identical']}/{numbers['of']}")
    click.echo(f"{'all verdicts':20} {totals['verdicts']['identical']}/{totals['verdicts']['of']}")
    if json_file is not None:
        json_file.write_text(json.dumps(totals, ensure_ascii=False, indent=1), encoding="utf-8")


def _print_counts(records: Sequence[RecordChecks], counts: dict[str, Any], max_printed: int) -> None:
    different = [record for record in records if record.first and not record.excluded]
    for record in different[:max_printed]:
        check, difference = record.first or ("", "")
        click.echo(f"{record.name}  {check}: {difference}", err=True)
    if len(different) > max_printed:
        click.echo(f"… and {len(different) - max_printed} more", err=True)
    apart = counts["apart"]
    if apart["requests"]["of"]:
        texts = ", ".join(f"{check} {apart[check]['identical']}/{apart[check]['of']}" for check in CHECKS)
        click.echo(f"counted apart, see `excluded` and `scores_apart` in the JSON: {texts}")
    for reason, count in sorted(counts["scores_apart"].items()):
        click.echo(f"scores not compared: {count} ({reason})")
    if counts["groups"]["of"]:
        click.echo(f"groups and tags identical {counts['groups']['identical']}/{counts['groups']['of']}")
    for check in CHECKS:
        total = counts["total"][check]
        click.echo(f"{check} identical {total['identical']}/{total['of']}")


def run() -> int:
    """Run the command with the arguments of this process and return its exit code."""
    try:
        main(standalone_mode=False)
    except AssayError as problem:
        click.echo(f"error: {problem}", err=True)
        return problem.exit_code
    except CorpusError as problem:
        click.echo(f"error: {problem}", err=True)
        return 2
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except click.Abort:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run())
