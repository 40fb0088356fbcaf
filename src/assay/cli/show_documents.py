"""`assay show RUN`: show documents of a run with prompt, response, answer, target and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import print_json
from assay.core.errors import InvalidOption
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.store.documents.details import DocumentRecord
    from assay.store.runs.run import Run
    from assay.viewer.documents.selection import DocumentSelection, SelectedDocument

__all__ = ["is_run", "parse_document_numbers", "show_documents"]

_INDENT = "  "


def is_run(word: str, folders: Sequence[str] = ()) -> bool:
    """Whether a word is `latest`, the path of a run, or the id of a stored run."""
    from assay.store.journal.journal import JOURNAL_FILE
    from assay.store.runs.lookup import find_run_folders

    path = Path(word).expanduser()
    if word == "latest" or (path / JOURNAL_FILE).is_file() or path.name == JOURNAL_FILE:
        return True
    names = [folder.name for folder in find_run_folders(folders)]
    if word not in names and path.exists() and _is_results(path):
        return True
    return word in names or (any(name.startswith(word) for name in names) and not _is_task(word))


def _is_results(path: Path) -> bool:
    """Whether a path has result files of another program; task files are not looked at."""
    from assay.engine.imports.formats import detect_format

    return path.suffix not in (".yaml", ".yml", ".py") and detect_format(path) is not None


def _is_task(word: str) -> bool:
    from assay.tasks.files.index import TaskIndex, find_task_roots

    return word in TaskIndex.build(find_task_roots()).entries


def parse_document_numbers(words: Sequence[str]) -> list[int]:
    """Parse the values of `--document`: numbers, separated by commas.

    >>> parse_document_numbers(["17,3", "5"])
    [17, 3, 5]
    """
    found = []
    for word in ",".join(words).split(","):
        if not word.strip().isdecimal():
            raise InvalidOption(
                f"`{word}` is not a document number", where="--document", hint="for example `--document 17`"
            )
        found.append(int(word))
    return found


def show_documents(
    run: Run, selection: DocumentSelection, *, limit: int, full: bool = False, as_json: bool = False
) -> None:
    """Print the selected documents of a run, at most `limit`."""
    from assay.store.documents.details import read_document
    from assay.viewer.documents.selection import select_documents

    chosen, found = select_documents(run, selection, limit=None if selection.numbers else limit)
    with run.journal.report_decode_errors():
        records = [(one, read_document(run.journal, one.task, one.number)) for one in chosen]
    if as_json:
        print_json([_to_json(one, record) for one, record in records if record is not None])
        return
    for one, record in records:
        if record is not None:
            _print_document(one, record, run.tasks[one.task], full=full)
    total = sum(run.journal.count_documents(task) for task in run.tasks)
    if not total and run.tasks_without_documents:
        text = "the run was imported without documents: the files contain aggregate scores only; `assay table` shows them"
    else:
        text = _summarise(selection, shown=len(chosen), found=found, total=total)
    done = sum(run.journal.count_all_outcomes().values())
    is_partial = total and done < total and not run.finished
    click.echo(f"{text} (unfinished: {done} of {total} are done)" if is_partial else text, err=True)


def _summarise(selection: DocumentSelection, *, shown: int, found: int, total: int) -> str:
    if not total:
        return "the run has no documents yet"
    kind = _describe_conditions(selection, is_one=found == 1)
    noun = "document" if total == 1 else "documents"
    if not found:
        return f"no documents {kind}; the run has {total} {noun}"
    matching = f"; {found} of {total} {noun} {kind}" if kind else f" of {found}"
    more = "; -n shows more" if shown < found else ""
    return f"{shown} shown{matching}{more}"


def _describe_conditions(selection: DocumentSelection, *, is_one: bool) -> str:
    """Return a predicate of the matching documents: `are wrong and match ...`."""
    adjectives = []
    if selection.wrong:
        adjectives.append(f"wrong in {selection.metric}" if selection.metric else "wrong")
    if selection.endings:
        adjectives.append(" or ".join(selection.endings))
    parts = [f"{'is' if is_one else 'are'} {' and '.join(adjectives)}"] if adjectives else []
    if selection.where.strip():
        parts.append(
            f"{'matches' if is_one else 'match'} `{escape_control_characters(selection.where.strip())}`"
        )
    return " and ".join(parts)


def _print_document(
    selected: SelectedDocument, record: DocumentRecord, facts: dict[str, Any], *, full: bool
) -> None:
    from assay.viewer.terminal.document_text import describe_document

    click.secho(
        escape_control_characters(f"── {selected.task}, document {selected.number} "), bold=True, nl=False
    )
    click.echo("─" * 40)
    for line in describe_document(record, facts, full=full):
        colour = {"target": "green", "score": "yellow", "ending": "yellow", "failed": "red"}.get(
            line.label, "cyan"
        )
        is_block = "\n" in line.text or line.label.startswith(("prompt", "response", "reasoning", "judge"))
        click.secho(line.label if is_block or line.note else f"{line.label:<9}", fg=colour, nl=False)
        if line.note:
            click.secho(f"  ({line.note})", dim=True, nl=False)
        if is_block:
            click.echo("")
            for text in line.text.split("\n") if line.text else ():
                click.echo(f"{_INDENT}{text}")
        else:
            click.echo(f"  {line.text}" if line.note else line.text)
    click.echo()


def _to_json(selected: SelectedDocument, record: DocumentRecord) -> dict[str, Any]:
    """Return a document as the JSON output has it."""
    from assay.core.records.responses import LogProbability

    requests = []
    for request in record.asked:
        response = request.response
        entry: dict[str, Any] = {"kind": request.kind, "prompt": record.prompts[request.prompt]}
        if request.kind == "likelihood":
            entry["continuation"] = request.continuation
        if request.repeat:
            entry["repeat"] = request.repeat
        entry |= request.options
        if response is None:
            entry["response"] = None
            entry["failures"] = [f"{kind}: {message}" for kind, message, _ in request.failures]
        elif isinstance(response.value, LogProbability):
            entry |= {"logprob": response.value.total, "greedy": response.value.greedy}
        else:
            entry |= {"response": response.value, "finish": response.finish}
            if response.reasoning is not None:
                entry["reasoning"] = response.reasoning
            if response.tool_calls:
                entry["tool_calls"] = [asdict(call) for call in response.tool_calls]
        requests.append(entry)
    return {
        "task": selected.task,
        "document": selected.number,
        "ending": selected.ending,
        "why": record.why,
        "score": selected.score,
        "target": record.target,
        "requests": requests,
        "answers": record.answers,
        "verdicts": [
            {
                "metric": metric,
                "filter": pipeline,
                "kind": kind,
                "value": value,
                **({"why": why} if why else {}),
            }
            for pipeline, metric, kind, value, why in record.verdicts
        ],
        "judges": [
            {
                "judge": judge.judge,
                "prompt": judge.prompt,
                "reply": judge.reply.value if judge.reply is not None else None,
            }
            for judge in record.judges
        ],
    }
