"""`assay new task`: create a task for a dataset."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.new.files import validate_name, write_files
from assay.core.errors import DatasetError, InvalidOption

if TYPE_CHECKING:
    from assay.tasks.drafts import ColumnRoles

__all__ = ["task_command"]

_HELP = """Create a task for a dataset: a YAML file, a helper file and a test. Then check it and show its prompts.

Guesses the columns from their names and contents; flags override the guesses. On a terminal, asks for columns if no flag
sets them.

\b
Examples:
  assay new task capitals --from capitals.csv
  assay new task my_arc --from allenai/ai2_arc --config ARC-Easy --split test
  assay new task faces --from faces.jsonl --text prompt --target name --image file
  assay new task capitals --from capitals.csv --text 'The capital of {{country}} is' --target capital
  assay new task sums --example '2 + 2 => 4' --example '3 + 4 => 7' --example '5 + 1 => 6'
  assay new task my_gsm8k --like gsm8k
"""
_MAX_SAMPLE_ROWS = 50
_FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_PREFERRED_SPLITS = ("test", "validation", "dev", "train")
_OUTPUT_TYPES = ("multiple_choice", "generate_until", "loglikelihood_rolling")


@click.command("task", help=_HELP)
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="FILE|DATASET",
    help="CSV, JSONL, JSON or Parquet file, or a dataset on the Hugging Face hub.",
)
@click.option("--config", "config_name", default="", metavar="NAME", help="Configuration of the dataset.")
@click.option(
    "--split", default="", metavar="NAME", help="Split of the dataset. [default: test, validation or train]"
)
@click.option(
    "--example",
    "examples",
    multiple=True,
    metavar="'QUESTION => ANSWER'",
    help="A document, instead of --from; repeatable. They are stored in NAME.jsonl.",
)
@click.option("--like", metavar="TASK", help="Copy this task, instead of --from.")
@click.option(
    "--text",
    "--question",
    "question",
    default="",
    metavar="COLUMN|TEMPLATE",
    help="Column with the question, or a prompt template.",
)
@click.option(
    "--target",
    "--answer",
    "answer",
    default="",
    metavar="COLUMN|TEMPLATE",
    help="Column with the answer, or a template of it.",
)
@click.option(
    "--choices",
    default="",
    metavar="COLUMNS",
    help="Column with lists of choices, or several columns separated by commas.",
)
@click.option("--image", default="", metavar="COLUMN", help="Column with images.")
@click.option("--type", "output_type", type=click.Choice(_OUTPUT_TYPES), help="Output type of the task.")
@click.option("--data_root", metavar="DIR", help="Local folder with datasets; also ASSAY_DATA.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Output folder. [default: ./NAME]"
)
def task_command(
    name: str,
    source: str | None,
    examples: tuple[str, ...],
    like: str | None,
    config_name: str,
    split: str,
    output_type: str | None,
    data_root: str | None,
    output: Path | None,
    **column_options: str,
) -> int:
    """Run the command; its help text is above."""
    from assay.cli.new.task_copy import copy_task_files
    from assay.cli.new.task_templates import build_task_files
    from assay.tasks.drafts import ColumnRoles, draft_task, guess_columns

    validate_name(name)
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    folder = output or Path(name)
    if sum(map(bool, (source, examples, like))) > 1:
        raise InvalidOption("--from, --example and --like cannot be used together", hint="use one of them")
    if like:
        write_files(folder, copy_task_files(name, like))
        return _check_and_show(folder / f"{name}.yaml", data_root)
    if not source and not examples:
        if not is_interactive:
            raise InvalidOption(
                "missing option: --from",
                where="--from",
                hint="pass a file, the name of a dataset, --example 'QUESTION => ANSWER', or --like TASK",
            )
        source = click.prompt("File or dataset (empty: type examples)", default="", show_default=False)
        examples = () if source else _prompt_for_examples()
    data_file: dict[str, str] = {}
    if examples:
        rows = [_parse_example(text) for text in examples]
        data_file = {f"{name}.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)}
        dataset: dict[str, Any] = {
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": f"{name}.jsonl"}},
        }
        split = "test"
    else:
        dataset = _build_dataset_keys(str(source), config_name, folder)
        rows, split = _read_rows(_build_dataset_keys(str(source), config_name, Path()), split, data_root)
    templates = {role: value for role, value in column_options.items() if "{{" in value}
    given = {role: value for role, value in column_options.items() if value and role not in templates}
    columns = _add_template_columns(guess_columns(rows, given), rows, templates)
    if is_interactive and not examples and not any(column_options.values()):
        columns = guess_columns(rows, _prompt_for_columns(columns, list(rows[0])))
    if output_type == "generate_until":
        columns = ColumnRoles(question=columns.question, answer=columns.answer, image=columns.image)
    elif output_type == "loglikelihood_rolling":
        columns = ColumnRoles(question=columns.question)
    draft = draft_task(rows, columns)
    if "question" in templates:
        draft = replace(draft, doc_to_text=templates["question"])
    if "answer" in templates:
        draft = replace(draft, doc_to_target=templates["answer"])
    if output_type and draft.output_type != output_type:
        missing = "--choices" if output_type == "multiple_choice" else "--target"
        raise InvalidOption(
            f"output type {output_type} needs more columns", where="--type", hint=f"set {missing}"
        )
    click.echo(_format_columns(columns, draft.output_type))
    files = build_task_files(name, dataset, split, list(rows[0]), columns, draft)
    write_files(folder, {**files, **data_file})
    return _check_and_show(folder / f"{name}.yaml", data_root)


def _parse_example(text: str) -> dict[str, Any]:
    """Parse `QUESTION => ANSWER`."""
    question, arrow, answer = text.partition("=>")
    if not arrow or not question.strip() or not answer.strip():
        raise InvalidOption(
            f"`{text}` is not an example", where="--example", hint="write 'QUESTION => ANSWER'"
        )
    return {"question": question.strip(), "answer": answer.strip()}


def _prompt_for_examples() -> tuple[str, ...]:
    """Ask for questions and answers until an empty question."""
    found: list[str] = []
    while True:
        question = click.prompt("Question (empty: done)", default="", show_default=False)
        if not question:
            break
        found.append(f"{question} => {click.prompt('Answer')}")
    if not found:
        raise InvalidOption("a task needs at least one example", where="--example")
    return tuple(found)


def _add_template_columns(
    columns: ColumnRoles, rows: list[dict[str, Any]], templates: dict[str, str]
) -> ColumnRoles:
    """Return the columns with an answer if only a template says what the answer is."""
    if "answer" in templates and not columns.answer:
        used = [name for name in rows[0] if name in templates["answer"] and name != columns.question]
        return replace(columns, answer=used[0] if used else columns.question)
    return columns


def _build_dataset_keys(source: str, config_name: str, folder: Path) -> dict[str, Any]:
    """Return the dataset keys of a task file in `folder`; without a folder, use absolute paths."""
    path = Path(source).expanduser()
    kind = _FORMATS.get(path.suffix.lower())
    if path.is_file():
        if kind is None:
            raise InvalidOption(f"unknown file type: `{source}`", hint=f"use one of {', '.join(_FORMATS)}")
        data_path = str(path.resolve()) if folder == Path() else os.path.relpath(path, folder)
        return {"dataset_path": kind, "dataset_kwargs": {"data_files": {"test": Path(data_path).as_posix()}}}
    if kind is not None or path.is_dir():
        raise DatasetError(f"file not found: `{source}`", where="--from")
    return {"dataset_path": source, **({"dataset_name": config_name} if config_name else {})}


def _read_rows(
    dataset: dict[str, Any], split: str, data_root: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Return the first rows and the name of their split."""
    import itertools
    import tempfile

    import yaml

    from assay.tasks.data.splits import load_splits
    from assay.tasks.files.task_loader import load_task

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
        try:
            splits = load_splits(
                load_task(draft), data_root=data_root or os.environ.get("ASSAY_DATA"), allow_data_outside=True
            )
        except DatasetError as error:
            if error.where.startswith(str(draft)):  # a temporary file that the user does not know
                error.where = "--from"
            raise
    name = split or next((known for known in _PREFERRED_SPLITS if known in splits), next(iter(splits)))
    if name not in splits:
        raise InvalidOption(f"no split `{name}`", where="--split", hint=f"available: {', '.join(splits)}")
    return [dict(row) for row in itertools.islice(iter(splits[name]), _MAX_SAMPLE_ROWS)], name


def _prompt_for_columns(columns: ColumnRoles, names: Sequence[str]) -> dict[str, str]:
    """Ask the user to confirm or change the guessed columns; an empty text stands for no column."""

    def parse(text: str) -> str:
        chosen = [name.strip() for name in text.split(",") if name.strip() not in ("", "-")]
        if unknown := [name for name in chosen if name not in names]:
            raise click.UsageError(f"no column `{unknown[0]}`; columns: {', '.join(names)}")
        return ",".join(chosen)

    answers = {
        "question": click.prompt("Column with the question", default=columns.question, value_proc=parse)
    }
    for role, guess in (
        ("answer", columns.answer),
        ("choices", ",".join(columns.choices)),
        ("image", columns.image),
    ):
        answers[role] = click.prompt(
            f"Column with the {role} (- for none)", default=guess or "-", value_proc=parse
        )
    return answers


def _format_columns(columns: ColumnRoles, output_type: str) -> str:
    parts = [f"question `{columns.question}`"]
    parts += [f"{role} `{', '.join(names)}`" for role, names in (("choices", columns.choices),) if names]
    parts += [
        f"{role} `{name}`" for role, name in (("answer", columns.answer), ("image", columns.image)) if name
    ]
    return f"{output_type}: {', '.join(parts)}"


def _check_and_show(path: Path, data_root: str | None) -> int:
    """Run `assay check` and `assay show` on the new task; return the exit code of the check."""
    from assay.cli.check import command as check
    from assay.cli.show import command as show

    where = ["--data_root", data_root] if data_root else []
    click.echo("")
    code: int = check.main([str(path), *where], standalone_mode=False)
    if not code:
        try:
            show.main([str(path), "-n", "1", *where], standalone_mode=False)
        except DatasetError as error:
            click.echo(f"no prompts shown: {error.what}", err=True)
        tested = f" or `pytest {path.parent}`" if any(path.parent.glob("test_*.py")) else ""
        click.echo(f"\nnext: `assay run {path} --limit 10`{tested}")
    return code
