"""`assay new task`: from a dataset to a task that runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from assay.cli.new.files import check_name, write_files
from assay.core.errors import BadData, BadOption

__all__ = ["task_command"]

_HELP = """Write a task for a dataset: a YAML file, a helper file and a test; then check it and show what it asks.

Columns are guessed from their names and from what is in them; flags say them instead. On a terminal, what no flag says
is asked.

\b
Examples:
  assay new task capitals --from capitals.csv
  assay new task my_arc --from allenai/ai2_arc --config ARC-Easy --split test
  assay new task faces --from faces.jsonl --question prompt --answer name --image file
"""
_LOOKED_AT = 50
_FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_SPLITS = ("test", "validation", "dev", "train")
_TYPES = ("multiple_choice", "generate_until", "loglikelihood_rolling")


@click.command("task", help=_HELP)
@click.argument("name")
@click.option(
    "--from", "source", metavar="FILE|DATASET", help="csv, jsonl, json, parquet; or a dataset of the hub."
)
@click.option("--config", "config_name", default="", metavar="NAME", help="Which configuration of a dataset.")
@click.option("--split", default="", metavar="NAME", help="Which split [default: test, validation or train]")
@click.option("--question", default="", metavar="COLUMN", help="The column that asks.")
@click.option("--answer", default="", metavar="COLUMN", help="The column that answers.")
@click.option(
    "--choices", default="", metavar="COLUMNS", help="A column of lists, or several columns, with commas."
)
@click.option("--image", default="", metavar="COLUMN", help="A column of pictures.")
@click.option("--type", "wanted", type=click.Choice(_TYPES), help="What is asked of a model.")
@click.option("--data_root", metavar="DIR", help="Folder that serves datasets offline; also ASSAY_DATA.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Folder [default: ./NAME]"
)
def task_command(
    name: str,
    source: str | None,
    config_name: str,
    split: str,
    wanted: str | None,
    data_root: str | None,
    output: Path | None,
    **said: str,
) -> int:
    """The command; its help text is above."""
    from assay.cli.new.writing import task_files
    from assay.tasks.drafting import Columns, guess_columns, make_draft

    check_name(name)
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    if not source:
        if not asks:
            raise BadOption("no data was named", where="--from", hint="a file, or a dataset of the hub")
        source = click.prompt("File or dataset")
    folder = output or Path(name)
    dataset = _dataset(source, config_name, folder)
    rows, split = _rows(_dataset(source, config_name, Path()), split, data_root)
    columns = guess_columns(rows, {role: value for role, value in said.items() if value})
    if asks and not any(said.values()):
        columns = guess_columns(rows, _asked(columns))
    if wanted == "generate_until":
        columns = Columns(question=columns.question, answer=columns.answer, image=columns.image)
    elif wanted == "loglikelihood_rolling":
        columns = Columns(question=columns.question)
    draft = make_draft(rows, columns)
    if wanted and draft.output_type != wanted:
        missing = "--choices" if wanted == "multiple_choice" else "--answer"
        raise BadOption(
            f"a task of the type {wanted} needs more columns", where="--type", hint=f"name them: {missing}"
        )
    click.echo(_told(columns, draft.output_type))
    write_files(folder, task_files(name, dataset, split, list(rows[0]), columns, draft))
    return _checked(folder / f"{name}.yaml", data_root)


def _dataset(source: str, config_name: str, folder: Path) -> dict[str, Any]:
    """The keys of a task file in a folder that say where its data are; without a folder, of one that may be anywhere."""
    path = Path(source).expanduser()
    kind = _FORMATS.get(path.suffix.lower())
    if path.is_file():
        if kind is None:
            raise BadOption(f"`{source}` is no kind of file that is known", hint=", ".join(_FORMATS))
        near = str(path.resolve()) if folder == Path() else os.path.relpath(path, folder)
        return {"dataset_path": kind, "dataset_kwargs": {"data_files": {"test": Path(near).as_posix()}}}
    if kind is not None or path.is_dir():
        raise BadData(f"there is no file `{source}`", where="--from")
    return {"dataset_path": source, **({"dataset_name": config_name} if config_name else {})}


def _rows(dataset: dict[str, Any], split: str, data_root: str | None) -> tuple[list[dict[str, Any]], str]:
    """The first documents, and the name of their split."""
    import itertools
    import tempfile

    import yaml

    from assay.tasks.data import load_splits
    from assay.tasks.load import load_task

    with tempfile.TemporaryDirectory() as place:
        draft = Path(place) / "draft.yaml"
        keys = {
            "task": "draft",
            "output_type": "generate_until",
            "doc_to_text": "",
            "doc_to_target": "",
            "test_split": "x",
        }
        draft.write_text(yaml.safe_dump({**keys, **dataset}), encoding="utf-8")
        splits = load_splits(load_task(draft), data_root=data_root or os.environ.get("ASSAY_DATA"))
    name = split or next((known for known in _SPLITS if known in splits), next(iter(splits)))
    if name not in splits:
        raise BadOption(f"there is no split `{name}`", where="--split", hint=f"there are {', '.join(splits)}")
    return [dict(row) for row in itertools.islice(iter(splits[name]), _LOOKED_AT)], name


def _asked(columns: Any) -> dict[str, str]:
    """What somebody at the terminal says to the guesses."""
    answers = {}
    for role, guess in (
        ("question", columns.question),
        ("answer", columns.answer),
        ("choices", ",".join(columns.choices)),
        ("image", columns.image),
    ):
        said = click.prompt(f"Column of the {role} (- for none)", default=guess or "-")
        answers[role] = "" if said == "-" else said
    return {role: value for role, value in answers.items() if value}


def _told(columns: Any, output_type: str) -> str:
    parts = [f"question `{columns.question}`"]
    parts += [f"{role} `{', '.join(held)}`" for role, held in (("choices", columns.choices),) if held]
    parts += [
        f"{role} `{held}`" for role, held in (("answer", columns.answer), ("image", columns.image)) if held
    ]
    return f"{output_type}: {', '.join(parts)}"


def _checked(path: Path, data_root: str | None) -> int:
    """`assay check` and `assay show`, at once."""
    from assay.cli.check import command as check
    from assay.cli.show import command as show

    where = ["--data_root", data_root] if data_root else []
    click.echo("")
    code: int = check.main([str(path), *where], standalone_mode=False)
    if not code:
        show.main([str(path), "-n", "1", *where], standalone_mode=False)
        click.echo(f"\nnext: `assay run {path} --limit 10`; its test: `pytest {path.parent}`")
    return code
