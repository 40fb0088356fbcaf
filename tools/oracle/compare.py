"""`python -m tools.oracle.compare CORPUS OTHER`: compare the records two corpora have in common, field by field."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from tools.oracle.comparison import find_difference
from tools.oracle.corpus import CorpusError, detect_harness, read_records

__all__ = ["compare_corpora", "main"]

_PATTERNS = {"lm_eval": ("tasks-*.jsonl*", "groups*.jsonl*"), "lmms_eval": ("records-*.jsonl*",)}
_IGNORED_KEYS = {"deps", "flags", "gold_out_of_range", "gold_variant", "helpers"}
"""Notes about the recording that no replay reads."""


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(corpus: Path, other: Path) -> None:
    """Compare the records that two corpora have in common. Fields of only one corpus are not compared."""
    identical = total = 0
    for name, difference in compare_corpora(corpus, other):
        total += 1
        identical += difference is None
        if difference is not None:
            click.echo(f"{name}  {difference}", err=True)
    click.echo(f"identical {identical}/{total}")


def compare_corpora(corpus: Path, other: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the name and the first difference of every record both corpora contain."""
    harness = detect_harness(corpus)
    if detect_harness(other) != harness:
        raise CorpusError("the corpora were recorded from different harnesses")
    for pattern in _PATTERNS[harness]:
        records = {_record_name(record): record for record in read_records(corpus, pattern)}
        for theirs in read_records(other, pattern):
            ours = records.get(_record_name(theirs))
            if ours is not None:
                yield _record_name(theirs), _compare_records(ours, theirs)


def _record_name(record: Mapping[str, Any]) -> str:
    return f"{record.get('task') or 'group:' + record['group']}#{record.get('variant', 'default')}"


def _compare_records(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    shared = [key for key in ours if key in theirs and key not in _IGNORED_KEYS]
    return find_difference({key: ours[key] for key in shared}, {key: theirs[key] for key in shared})


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except CorpusError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(2)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
