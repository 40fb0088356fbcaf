"""`assay show`: show the exact prompts of a task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from assay.cli.options import OptionsCommand, add_run_options, build_run_spec
from assay.core.errors import ErrorGroup, InvalidOption, UnsupportedRequest
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Ability, Traits
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.core.records.requests import Request

__all__ = ["command"]

_OPTIONS = (
    "model model_args gen_kwargs apply_chat_template fewshot_as_multiturn system_instruction num_fewshot mc_as_generation "
    "include_path data_root samples metadata trust_remote_code seed helper_timeout"
).split()

_HELP = """Show the exact prompts, targets, choices and media of the first documents of a task.

With `--model`, shows the prompts as that model receives them, with its chat template applied. If a prompt exceeds the
context length of a local model, shows the part that remains.

\b
Examples:
  assay show quickstart_addition
  assay show quickstart_copy -n 1 --num_fewshot 2
  assay show my_task.yaml --apply_chat_template --json
"""


@click.command("show", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, required=True, metavar="TASK...")
@click.option(
    "-n", "--documents", default=2, metavar="N", help="Number of documents per task.", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    task_names: tuple[str, ...], documents: int, as_json: bool, config: Path | None, **values: Any
) -> None:
    """Run the command; its help text is above."""
    if documents < 1:
        raise InvalidOption("must be at least 1", where="--documents")
    values["tasks"] = ([name for word in task_names for name in word.split(",") if name],)
    spec = replace(build_run_spec(values, config), predict_only=True)  # prompts do not need a judge
    if spec.samples is None:
        spec = replace(spec, limit=documents)

    from assay import api
    from assay.core.ports import SupportsPreview, SupportsTruncationPreview
    from assay.user_code.errors import wrap_user_errors
    from assay.user_code.timeouts import enforce_time_limit

    try:
        plan = api.plan(spec)
    except (UnsupportedRequest, ErrorGroup) as error:
        problems = error.errors if isinstance(error, ErrorGroup) else [error]
        if spec.model != RunSpec().model or not all(isinstance(one, UnsupportedRequest) for one in problems):
            raise
        plan = api.plan(spec, model=_PromptOnlyModel())  # no model was given: show the prompts for any model
    preview = plan.model.preview if isinstance(plan.model, SupportsPreview) else None
    fit = plan.model.preview_truncation if isinstance(plan.model, SupportsTruncationPreview) else None
    shown = []
    for planned in plan.tasks.values():
        with enforce_time_limit(spec.helper_timeout), wrap_user_errors(planned.spec):
            shown += _render_rows(planned, preview, fit)
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    for row in shown:
        _print(row)


add_run_options(command, _OPTIONS)


class _PromptOnlyModel:
    """Accepts every prompt and answers none; used if no model is given."""

    name = "any model"
    traits = Traits(abilities=frozenset(get_args(Ability)))

    async def identify(self) -> dict[str, str]:
        return {"name": self.name}

    async def open(self) -> None:
        """Nothing to open."""

    def answer(self, window: Any) -> Any:
        raise NotImplementedError("this model only shows prompts")

    async def close(self) -> None:
        """Nothing to close."""


def _render_rows(planned: Any, preview: Any, fit: Any) -> list[dict[str, Any]]:
    from assay.core.records.codec import to_plain
    from assay.core.records.requests import Generate, Likelihood
    from assay.tasks.prompts.field_compilers import copy_fields

    task = planned.task
    rows = []
    for document, requests in task.render():
        fields = copy_fields(document.fields)
        asked = []
        for request in requests:
            if request.repeat:
                continue
            entry: dict[str, Any] = {"prompt": preview(request) if preview else _format_prompt(request)}
            if fit is not None and (truncated := fit(request)) is not None:
                entry["truncated"] = {
                    "text": truncated.text,
                    "input_tokens": truncated.tokens,
                    "truncated_tokens": truncated.truncated_tokens,
                }
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


def _format_prompt(request: Request) -> str:
    from assay.core.records.messages import Text

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
        truncated = entry.get("truncated")
        read = truncated["text"] if truncated else entry["prompt"]
        if read != last:
            click.secho("prompt", fg="cyan", nl=not truncated)
            if truncated:
                kept, removed = truncated["input_tokens"], truncated["truncated_tokens"]
                click.secho(f" truncated: {kept} of {kept + removed} tokens remain", fg="yellow")
            click.echo(escape_control_characters(read))
            last = read
        for medium in entry.get("media", ()):
            click.secho(escape_control_characters(f"media    {medium}"), fg="magenta")
        if "continuation" in entry:
            click.secho(f"choice {number}: ", fg="cyan", nl=False)
            click.echo(repr(entry["continuation"]))
        if "settings" in entry:
            repeats = f"  ({entry['repeats']} times)" if entry["repeats"] > 1 else ""
            click.secho("settings ", fg="cyan", nl=False)
            click.echo(escape_control_characters(json.dumps(entry["settings"], ensure_ascii=False)) + repeats)
    if row.get("dialogue"):
        click.secho("rounds   ", fg="cyan", nl=False)
        click.echo("first round only; later rounds depend on the answers")
    click.secho("target   ", fg="green", nl=False)
    click.echo(repr(row["target"]))
    click.echo()
