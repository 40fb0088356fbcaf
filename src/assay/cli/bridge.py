"""`assay bridge`: serve a model to external agents, and run them on documents in sandboxes."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from assay.cli.arguments import print_json
from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_arguments
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.agents.external.bridge_server import BridgeServer
    from assay.engine.bridging import BridgeDocument

__all__ = ["command"]

_HELP = """Serve a model to an external agent: an OpenAI- and Anthropic-compatible endpoint on the loopback address.

With COMMAND, run it once per document, each in a sandbox of its own without network, and score its files and its exit.
`{field}` in COMMAND is a field of the document. The endpoint is inside the sandbox; COMMAND gets its address and its token
as OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY. FILE is JSONL; a document may have `files`
(path: text), `setup` (a command), `checks` (name: command) and `check_files` (path: text, written just before the checks). Without
COMMAND, print these variables and serve until Ctrl-C.

Every call is in the journal of --output before the agent gets the answer; the same command continues an interrupted run.

\b
Examples:
  assay bridge --model openai --model_args model=gpt-5-mini --output bridge/
  assay bridge --model anthropic --model_args model=claude-haiku-4-5 --output bridge/ \\
      --documents tasks.jsonl --readable ~/agent-venv -- ~/agent-venv/bin/mini --yolo --task "{instruction}"
"""


_PROGRAM_OPTIONS = frozenset(
    ("documents", "readable", "variables", "network", "sandbox", "limits", "timeout", "max_turns", "max_tokens", "concurrency", "as_json")
)  # fmt: skip
"""The options that concern COMMAND."""


@click.command("bridge", help=_HELP, context_settings={"ignore_unknown_options": False})
@click.argument("program", nargs=-1, metavar="[-- COMMAND]...", type=click.UNPROCESSED)
@click.option("--model", required=True, metavar="NAME", help="Model; `assay ls models` lists them.")
@click.option("--model_args", default="", metavar="KEY=VALUE,...", help="Arguments of the model.")
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Journal and results."
)
@click.option(
    "--documents",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Documents. [default: one without fields]",
)
@click.option("--readable", multiple=True, metavar="PATH", help="More files that COMMAND may read.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Environment variable of COMMAND."
)
@click.option("--network", is_flag=True, help="Give COMMAND the network of this machine.")
@click.option(
    "--sandbox", default="auto", metavar="NAME", help="auto, namespaces or bubblewrap. [default: auto]"
)
@click.option(
    "--limits", default="", metavar="KEY=VALUE,...", help="Limits of the sandbox, as memory_bytes=8e9."
)
@click.option(
    "--timeout", type=float, default=600.0, metavar="S", help="Seconds per document. [default: 600]"
)
@click.option("--max_turns", type=int, default=50, metavar="N", help="Calls per document. [default: 50]")
@click.option("--max_tokens", type=int, metavar="N", help="Tokens per document.")
@click.option("--max_cost", type=float, metavar="USD", help="Cost of all calls.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Documents at a time. [default: 1]",
)
@click.option(
    "--tool_calls",
    default="auto",
    type=click.Choice(["auto", "native", "json", "python", "xml"]),
    help="How the model gets tools: natively, or as text with calls in this form. [default: auto]",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port, without COMMAND.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    program: tuple[str, ...], model: str, model_args: str, as_json: bool, port: int, **options: Any
) -> int:
    """Run the command; its help text is above."""
    from assay.agents.external.external_agent import AgentProgram
    from assay.engine.bridging import BridgeRun, run_bridge, serve_bridge
    from assay.models import make_model

    _reject_unused_options(click.get_current_context(), has_program=bool(program))
    limits = {
        "memory_bytes": 4 << 30,
        "processes": 256,
        "open_files": 1024,
        "time_s": options["timeout"],
        **{key: _to_number(key, value) for key, value in parse_arguments(options["limits"]).items()},
    }
    environment = {"limits": limits, "sandbox": options["sandbox"], "network": options["network"]}
    environment["readable"] = [str(Path(path).expanduser().absolute()) for path in options["readable"]]
    run = BridgeRun(
        model=make_model(model, parse_arguments(model_args)),
        program=AgentProgram(
            command=program,
            environment=_read_variables(options["variables"]),
            timeout_s=options["timeout"],
            max_turns=options["max_turns"],
            max_tokens=options["max_tokens"],
        ),
        folder=options["output"],
        documents=_read_documents(options["documents"]),
        environment=environment,
        concurrency=options["concurrency"],
        max_cost_usd=options["max_cost"],
        tool_calls=options["tool_calls"],
    )
    if not program:
        try:
            serve_bridge(run, _announce_until_input_ends, port)
        except KeyboardInterrupt:
            click.echo("", err=True)
        return 0
    done = run_bridge(run, lambda document: None if as_json else _print_document(document))
    if as_json:
        print_json([document.to_json() for document in done])
    else:
        _print_summary(done)
    return 1 if any(document.score is None for document in done) else 0


def _reject_unused_options(context: click.Context, *, has_program: bool) -> None:
    """Raise an error for options that have no meaning without COMMAND, or with it."""
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if has_program and parameter.name == "port":
            raise InvalidOption(
                "`--port` cannot be used with a COMMAND",
                where="--port",
                hint="COMMAND finds the address in OPENAI_BASE_URL and ANTHROPIC_BASE_URL",
            )
        if not has_program and parameter.name in _PROGRAM_OPTIONS:
            raise InvalidOption(
                f"`{parameter.opts[0]}` needs a COMMAND",
                where=parameter.opts[0],
                hint="add `-- COMMAND`, or leave the option out to serve the model only",
            )


def _announce_until_input_ends(server: BridgeServer) -> None:
    for name, value in server.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    click.echo("press Ctrl-C, or close standard input, to stop the bridge", err=True)
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        sys.stdin.read()
        return
    while os.read(
        descriptor, 1 << 16
    ):  # not `sys.stdin`, whose lock this thread would hold while Python exits
        pass


def _read_documents(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return [{}]
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidOption(f"cannot read `{path}`: {problem}", where="--documents") from None
    documents = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as problem:
            raise InvalidOption(f"line {number} is not JSON: {problem}", where=f"{path}:{number}") from None
        if not isinstance(value, dict):
            raise InvalidOption("a document must be an object", where=f"{path}:{number}")
        documents.append(value)
    if not documents:
        raise InvalidOption("the file has no documents", where=str(path))
    return documents


def _read_variables(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, sign, _ in pairs:
        if not name or not sign:
            raise InvalidOption(f"`{name}` is not NAME=VALUE", where="--env")
    return {name: value for name, _, value in pairs}


def _to_number(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidOption(f"`{key}` must be a number, not {value!r}", where="--limits") from None
    return number if key == "time_s" else int(number)


def _print_document(document: BridgeDocument) -> None:
    score = "not scored" if document.score is None else f"{document.score:.2f}"
    result = document.result
    end = f"{result.end} {result.exit_code}" if result.exit_code is not None else result.end
    why = f"  {result.why}" if result.why else ""
    text = f"{document.name}: {score}  ({end}, {result.turns} calls, {result.tokens} tokens){why}"
    click.echo(escape_control_characters(text))
    for name, report in document.check_reports.items():
        if report["reason"]:
            click.echo(escape_control_characters(f"  {name}: {report['reason']}"))


def _print_summary(documents: list[BridgeDocument]) -> None:
    from assay.stats.intervals.confidence_intervals import mean_interval

    scores = [document.score for document in documents if document.score is not None]
    unscored = len(documents) - len(scores)
    notes = f", {unscored} not scored" if unscored else ""
    if not scores:
        click.echo(f"no document was scored ({unscored} not scored)")
        return
    mean = sum(scores) / len(scores)
    shown = ""
    if len(scores) > 1:
        interval = mean_interval(scores, limits=(0.0, 1.0))
        shown = f" [{interval.low:.3f}, {interval.high:.3f}]"
    click.echo(f"score {mean:.3f}{shown}, {len(scores)} documents{notes}")
    costs = [document.result.cost_usd for document in documents if document.result.cost_usd is not None]
    if costs:
        click.echo(f"cost {sum(costs):.4f} USD")
