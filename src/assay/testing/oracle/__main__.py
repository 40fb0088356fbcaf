"""`python -m assay.testing.oracle CORPUS_DIR --task_root DIR [--family F] [--task T] [--json FILE]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from assay.core.errors import AssayError
from assay.testing.oracle import lm_eval
from assay.testing.oracle.corpus import find_corpus
from assay.testing.oracle.lm_eval import Checks

CHECKS = ("requests", "metrics", "results")


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--task_root", required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--family", default="", help="Only the tasks under this folder of the task root.")
@click.option("--task", default="", help="Only this task.")
@click.option("--every", default=1, help="Only every N-th record.")
@click.option("--first", "shown", default=20, help="How many differences to print.", show_default=True)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the counts and differences here."
)
def main(
    corpus: Path, task_root: Path, family: str, task: str, every: int, shown: int, json_file: Path | None
) -> None:
    """Replay a recorded corpus and say what is identical."""
    if find_corpus(corpus) != "lm_eval":
        raise AssayError("only corpora of lm_eval can be replayed so far")
    records = lm_eval.replay(corpus, task_root, family=family, task=task, every=every)
    document = tally(_with_differences(records, shown))
    for check in CHECKS:
        counts = document["total"][check]
        click.echo(f"{check} identical {counts['identical']}/{counts['of']}")
    if json_file is not None:
        json_file.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")


def _with_differences(records: Iterable[Checks], shown: int) -> Iterable[Checks]:
    for checks in records:
        different = next((check for check in CHECKS if getattr(checks, check)), None)
        if different and not checks.excluded and shown > 0:
            shown -= 1
            click.echo(f"{checks.name}  {different}: {getattr(checks, different)}", err=True)
        yield checks


def tally(records: Iterable[Checks]) -> dict[str, Any]:
    """Counts per check in total and per task; excluded records are listed, not counted."""
    total = {check: {"identical": 0, "of": 0} for check in CHECKS}
    tasks: dict[str, Any] = {}
    for checks in records:
        entry = {check: getattr(checks, check) or "identical" for check in CHECKS}
        tasks[checks.name] = {**entry, **({"excluded": checks.excluded} if checks.excluded else {})}
        if not checks.excluded:
            for check in CHECKS:
                total[check]["of"] += 1
                total[check]["identical"] += getattr(checks, check) is None
    return {"total": total, "tasks": tasks}


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except AssayError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
