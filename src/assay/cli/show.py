"""`assay show`: show the exact prompts of a task, or documents of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from assay.cli.arguments import find_run_or_results, in_option, print_json, split_names
from assay.cli.options import OptionsCommand, add_run_options, build_run_spec
from assay.cli.show_documents import is_run, parse_document_numbers, show_documents
from assay.core.errors import ErrorGroup, InvalidOption, UnsupportedRequest
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Ability, Traits
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.core.records.requests import Request

__all__ = ["command"]

_OPTIONS = (
    "model model_args gen_kwargs apply_chat_template fewshot_as_multiturn system_instruction num_fewshot mc_as_generation "
    "include_path data_root samples metadata trust_remote_code seed helper_timeout tool_calls vary variants variant_seed"
).split()

_HELP = """Show the exact prompts, targets, choices and media of a task, or the documents of a run.

`assay show TASK` shows the first documents of a task. With `--model`, shows the prompts as that model receives them, with its
chat template applied. If a prompt exceeds the context length of a local model, shows the part that remains.

`assay show RUN` shows documents of a stored run (id, start of an id, path or `latest`): the end of the prompt, the response,
what each filter took from it, the target and the scores.

\b
Examples:
  assay show quickstart_addition
  assay show quickstart_copy -n 1 --num_fewshot 2
  assay show my_task.yaml --apply_chat_template --json
  assay show gsm8k --yaml
  assay show latest --wrong -n 5
  assay show latest --ending truncated --tasks gsm8k
  assay show latest --where 'score<1 and length>400 and not truncated'
  assay show latest --document 17 --full
"""

_TASK_DOCUMENTS, _RUN_DOCUMENTS = 2, 5
_RUN_FLAGS = ("wrong", "endings", "where", "numbers", "task_filter", "metric", "full", "scoring", "folders")


@click.command("show", cls=OptionsCommand, help=_HELP)
@click.argument("names", nargs=-1, required=True, metavar="TASK...|RUN")
@click.option(
    "-n",
    "--documents",
    "--limit",
    "-L",
    "documents",
    type=int,
    metavar="N",
    help=f"Number of documents. [default: {_TASK_DOCUMENTS} of each task, or {_RUN_DOCUMENTS} of a run]",
)
@click.option(
    "--wrong", is_flag=True, help="Of a run: only documents without the full score, the lowest first."
)
@click.option(
    "--ending",
    "endings",
    multiple=True,
    metavar="ENDING",
    help="Of a run: only documents with this ending, for example `truncated` or `unparsed`; repeatable.",
)
@click.option(
    "--where",
    default="",
    metavar="EXPRESSION",
    help="Of a run: only documents that match a filter expression, for example `wrong and answer~/[0-9]+/`.",
)
@click.option(
    "--document",
    "numbers",
    multiple=True,
    metavar="N",
    help="Of a run: the documents with these numbers, separated by commas.",
)
@click.option("--tasks", "task_filter", multiple=True, metavar="NAMES", help="Of a run: only these tasks.")
@click.option(
    "--metric",
    metavar="METRIC[,FILTER]",
    help="Of a run: the metric that decides what is wrong. [default: the first metric of each task]",
)
@click.option("--full", is_flag=True, help="Of a run: do not shorten prompts and responses.")
@click.option(
    "--scoring",
    type=int,
    metavar="N",
    help="Of a run: the scores of the Nth rescoring (0: the original scores). [default: the latest]",
)
@in_option
@click.option(
    "--yaml",
    "as_yaml",
    is_flag=True,
    help="Of a task: the configuration after includes, groups and flags, with the file and line of each key.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    names: tuple[str, ...],
    documents: int | None,
    as_yaml: bool,
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Run the command; its help text is above."""
    if documents is not None and documents < 1:
        raise InvalidOption("must be at least 1", where="--documents")
    if as_yaml:
        _show_config(
            names, as_json, config, {key: value for key, value in values.items() if key not in _RUN_FLAGS}
        )
        return
    about_run = {name: values.pop(name) for name in _RUN_FLAGS}
    if any(value not in (None, False, (), "") for value in about_run.values()) or (
        len(names) == 1 and is_run(names[0])
    ):
        _show_run(names, limit=documents or _RUN_DOCUMENTS, as_json=as_json, flags=about_run)
    else:
        _show_tasks(names, documents or _TASK_DOCUMENTS, as_json, config, values)


def _show_run(names: tuple[str, ...], *, limit: int, as_json: bool, flags: dict[str, Any]) -> None:
    from assay.store.runs.run import Run
    from assay.viewer.documents.selection import DocumentSelection

    if len(names) > 1:
        raise InvalidOption(
            f"one run at a time, got {len(names)}: {', '.join(names)}",
            hint="`--tasks` selects tasks of the run",
        )
    selection = DocumentSelection(
        tasks=split_names(flags["task_filter"]),
        metric=flags["metric"] or "",
        wrong=flags["wrong"],
        endings=split_names(flags["endings"]),
        numbers=parse_document_numbers(flags["numbers"]) if flags["numbers"] else (),
        where=flags["where"],
    )
    if names and Path(names[0]).suffix in (".yaml", ".yml", ".py"):
        raise InvalidOption(
            f"`{names[0]}` is a task, and an option of this command selects documents of a run",
            hint="`-n N` shows the first N documents of a task; for a run, pass its id or `latest`",
        )
    stored = Run(find_run_or_results(names[0], flags["folders"]))
    run = stored.scored(flags["scoring"])
    try:
        show_documents(run, selection, limit=limit, full=flags["full"], as_json=as_json)
    finally:
        run.close()
        stored.close()


def _show_config(names: tuple[str, ...], as_json: bool, config: Path | None, values: dict[str, Any]) -> None:
    """Print the resolved configuration of tasks; needs no data and no model."""
    from assay.tasks.files.index import TaskIndex, find_task_roots
    from assay.tasks.files.resolved_config import format_resolved_yaml, resolve_config, to_json_value
    from assay.tasks.files.selection import select_tasks

    values["tasks"] = (split_names(names),)
    spec = build_run_spec(values, config)
    flags: dict[str, Any] = {"num_fewshot": spec.num_fewshot, "generation_kwargs": spec.gen_kwargs}
    given = {key: value for key, value in flags.items() if value not in (None, {})}
    selection = select_tasks(list(spec.tasks), TaskIndex.build(find_task_roots(spec.include_path)))
    resolved = {name: resolve_config(task, given) for name, task in selection.tasks.items()}
    if as_json:
        plain = {
            name: {key: {"value": to_json_value(value), "source": source} for key, value, source in keys}
            for name, keys in resolved.items()
        }
        print_json(plain)
        return
    click.echo(
        "\n---\n".join(escape_control_characters(format_resolved_yaml(keys)) for keys in resolved.values())
    )


def _show_tasks(
    task_names: tuple[str, ...], documents: int, as_json: bool, config: Path | None, values: dict[str, Any]
) -> None:
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
            shown += _render_rows(planned, spec, preview, fit)
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


def _render_rows(planned: Any, spec: RunSpec, preview: Any, fit: Any) -> list[dict[str, Any]]:
    from assay.core.records.codec import to_plain
    from assay.core.records.requests import Generate, Likelihood
    from assay.tasks.prompts.field_compilers import copy_fields
    from assay.user_code.random_state import TaskRandomState

    task = planned.task
    rows = []
    random_state = TaskRandomState(spec.seed, task.name, planned.prompt_states)
    rendering = task.start_pass()
    for document in task.documents():
        with random_state.continue_rendering():  # draws as in a run
            requests = rendering.render_requests(document)
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
                if request.native_tools is not None:
                    entry["tools"] = request.native_tools.to_json()["tools"]
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
    from assay.core.records.tools import ToolCall

    lines = []
    for message in request.prompt.messages:
        text = ""
        for part in message.parts:
            piece = _format_part(part)
            text += f"\n{piece}" if text and isinstance(part, ToolCall) else piece
        lines.append(f"[{message.role}] {text}" if request.prompt.chat else text)
    return "\n".join(lines)


def _format_part(part: Any) -> str:
    from assay.core.records.messages import Text
    from assay.core.records.tools import ToolCall, ToolResult

    match part:
        case Text(text=text):
            return text
        case ToolCall(name=name, arguments=arguments):
            return f"<tool call {name} {arguments}>"
        case ToolResult(content=content):
            return content
        case _:
            return f"<{type(part).__name__.lower()}>"


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
        if "tools" in entry:
            click.secho("tools    ", fg="magenta", nl=False)
            click.echo(escape_control_characters(", ".join(tool["name"] for tool in entry["tools"])))
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
