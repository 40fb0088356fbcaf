"""`python -m assay.testing.oracle CORPUS_DIR --task_root DIR [--family F] [--task T] [--jobs N] [--json FILE]`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from assay.core.errors import AssayError
from assay.testing.oracle.checks import CHECKS, Checks, tally
from assay.testing.oracle.corpus import find_corpus
from assay.testing.oracle.replay import Wanted, replay_in_processes

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("corpus", type=_FOLDER)
@click.option("--task_root", required=True, type=_FOLDER, help="The harness's package, or its task folder.")
@click.option("--family", default="", help="Only what lies under this folder of the task root.")
@click.option(
    "--task", default="", help="Only this task (a glob may match several); `group:NAME` for a group."
)
@click.option("--every", default=1, type=click.IntRange(1), help="Only every N-th record.")
@click.option(
    "--per_family",
    default=0,
    type=click.IntRange(0),
    help="Only the first N tasks of each folder, no groups.",
)
@click.option(
    "--jobs", default=0, type=click.IntRange(0), help="Processes; as many as there are CPUs by default."
)
@click.option("--first", "shown", default=20, help="How many differences to print.", show_default=True)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write counts and differences here."
)
def main(
    corpus: Path,
    task_root: Path,
    family: str,
    task: str,
    every: int,
    per_family: int,
    jobs: int,
    shown: int,
    json_file: Path | None,
) -> None:
    """Replay a recorded corpus and say what is identical. Programs among recorded answers are run, with limits."""
    find_corpus(corpus)
    wanted = Wanted(
        corpus=corpus, task_root=task_root, family=family, task=task, every=every, per_family=per_family
    )
    records = replay_in_processes(wanted, jobs or len(os.sched_getaffinity(0)))
    if not records:
        raise AssayError("no record of the corpus is asked for", hint="see --family, --task and --every")
    document = tally(records)
    _show(records, document, shown)
    if json_file is not None:
        json_file.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")


def _show(records: Sequence[Checks], document: dict[str, Any], shown: int) -> None:
    different = [checks for checks in records if checks.first and not checks.excluded]
    for checks in different[:shown]:
        check, found = checks.first or ("", "")
        click.echo(f"{checks.name}  {check}: {found}", err=True)
    if len(different) > shown:
        click.echo(f"… and {len(different) - shown} more", err=True)
    apart = document["apart"]
    if apart["requests"]["of"]:
        counts = ", ".join(f"{check} {apart[check]['identical']}/{apart[check]['of']}" for check in CHECKS)
        click.echo(f"counted apart, see `excluded` and `scores_apart` in the JSON: {counts}")
    for reason, count in sorted(document["scores_apart"].items()):
        click.echo(f"scores not compared: {count} ({reason})")
    if document["groups"]["of"]:
        click.echo(f"groups and tags identical {document['groups']['identical']}/{document['groups']['of']}")
    for check in CHECKS:
        counts = document["total"][check]
        click.echo(f"{check} identical {counts['identical']}/{counts['of']}")


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except AssayError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except click.Abort:
        sys.exit(130)
