"""`assay show`: what the model will be asked, to the letter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from assay.cli.options import OptionsCommand, add_run_options, spec_from
from assay.core.errors import BadOption, CannotAnswer, Problems
from assay.core.ports import Ability, Traits
from assay.core.printable import printable
from assay.core.runspec import RunSpec

__all__ = ["command"]

_OPTIONS = (
    "model model_args gen_kwargs apply_chat_template fewshot_as_multiturn system_instruction num_fewshot mc_as_generation "
    "include_path data_root samples metadata trust_remote_code seed"
).split()

_HELP = """Show the exact prompts, targets, choices and media of a task's first documents.

With `--model`, prompts are shown as that model will receive them, its chat template applied.

\b
Examples:
  assay show quickstart_addition
  assay show quickstart_copy -n 1 --num_fewshot 2
  assay show my_task.yaml --apply_chat_template --json
"""


@click.command("show", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, required=True, metavar="TASK...")
@click.option(
    "-n", "--documents", default=2, metavar="N", help="How many documents of each task.", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    task_names: tuple[str, ...], documents: int, as_json: bool, config: Path | None, **values: Any
) -> None:
    """The command; its help text is above."""
    if documents < 1:
        raise BadOption("at least one document must be shown", where="--documents")
    values["tasks"] = ([name for word in task_names for name in word.split(",") if name],)
    spec = replace(spec_from(values, config), predict_only=True)  # prompts need no judge
    if spec.samples is None:
        spec = replace(spec, limit=documents)

    from assay import api
    from assay.core.ports import Previews
    from assay.user_code.errors import wrap_user_errors

    try:
        plan = api.plan(spec)
    except (CannotAnswer, Problems) as error:
        problems = error.problems if isinstance(error, Problems) else [error]
        if spec.model != RunSpec().model or not all(isinstance(one, CannotAnswer) for one in problems):
            raise
        plan = api.plan(spec, model=_Reader())  # nobody named a model: show what any would be asked
    preview = plan.model.preview if isinstance(plan.model, Previews) else None
    shown = []
    for planned in plan.tasks.values():
        with wrap_user_errors(planned.spec):
            shown += _rows(planned, preview)
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    for row in shown:
        _print(row)


add_run_options(command, _OPTIONS)


class _Reader:
    """Takes every prompt and answers none: stands for a model where none was named."""

    name = "any model"
    traits = Traits(abilities=frozenset(get_args(Ability)))

    async def identify(self) -> dict[str, str]:
        return {"name": self.name}

    async def open(self) -> None:
        """Nothing to open."""

    def answer(self, window: Any) -> Any:
        raise NotImplementedError("prompts are shown, not answered")

    async def close(self) -> None:
        """Nothing to close."""


def _rows(planned: Any, preview: Any) -> list[dict[str, Any]]:
    from assay.core.codec import to_plain
    from assay.core.requests import Generate, Likelihood
    from assay.tasks.makers import loan

    task = planned.task
    rows = []
    for document, requests in task.render():
        fields = loan(document.fields)
        asked = []
        for request in requests:
            if request.repeat:
                continue
            entry: dict[str, Any] = {"prompt": preview(request) if preview else _prompt(request)}
            if isinstance(request, Likelihood):
                entry["continuation"] = request.continuation
            if isinstance(request, Generate):
                entry["settings"] = to_plain(dict(request.settings.values))
                entry["repeats"] = task.spec.repeats
            media = [
                f"{type(part).__name__.lower()} {part.digest[:12]} {part.source}"
                for part in request.prompt.media
            ]
            if media:
                entry["media"] = media
            asked.append(entry)
        choices = task.choices(fields)
        rows.append(
            {
                "task": task.name,
                "document": document.index,
                "target": to_plain(task.target(fields)),
                **({"choices": to_plain(list(choices))} if choices is not None else {}),
                "requests": asked,
                **({"dialogue": True} if task.is_dialogue else {}),
            }
        )
    return rows


def _prompt(request: Any) -> str:
    from assay.core.messages import Text

    lines = []
    for message in request.prompt.messages:
        text = "".join(
            part.text if isinstance(part, Text) else f"<{type(part).__name__.lower()}>"
            for part in message.parts
        )
        lines.append(f"[{message.role}] {text}" if request.prompt.chat else text)
    return "\n".join(lines)


def _print(row: dict[str, Any]) -> None:
    click.secho(f"── {row['task']}, document {row['document']} ", bold=True, nl=False)
    click.echo("─" * 40)
    last = None
    for number, entry in enumerate(row["requests"]):
        if entry["prompt"] != last:
            click.secho("prompt", fg="cyan")
            click.echo(printable(entry["prompt"]))
            last = entry["prompt"]
        for medium in entry.get("media", ()):
            click.secho(printable(f"media    {medium}"), fg="magenta")
        if "continuation" in entry:
            click.secho(f"choice {number}: ", fg="cyan", nl=False)
            click.echo(repr(entry["continuation"]))
        if "settings" in entry:
            repeats = f"  ({entry['repeats']} times)" if entry["repeats"] > 1 else ""
            click.secho("settings ", fg="cyan", nl=False)
            click.echo(printable(json.dumps(entry["settings"], ensure_ascii=False)) + repeats)
    if row.get("dialogue"):
        click.secho("rounds   ", fg="cyan", nl=False)
        click.echo("this is the first; the answer decides what is asked next")
    click.secho("target   ", fg="green", nl=False)
    click.echo(repr(row["target"]))
    click.echo()
