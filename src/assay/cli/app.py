"""The command group: names the subcommands, loads one when it is called, prints errors as people like them."""

from __future__ import annotations

import shlex
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from assay.core.errors import AssayError, ErrorGroup, RunInterrupted, UnknownName
from assay.core.printable import escape_control_characters
from assay.core.secrets import redact, redact_assignments

__all__ = ["call"]

COMMANDS = {
    "run": ("assay.cli.run", "Evaluate a model on tasks; repeat the command to continue."),
    "plan": ("assay.cli.plan", "Say what a run would do, and everything that is wrong with it."),
    "sweep": ("assay.cli.sweep", "Run several models in several settings; one table at the end."),
    "check": ("assay.cli.check", "Find everything that is wrong with tasks, before anybody runs them."),
    "show": ("assay.cli.show", "Show the exact prompts, targets and choices of a task."),
    "runs": ("assay.cli.runs", "List the runs that are kept; show, repair, remove them."),
    "resume": ("assay.cli.resume", "Go on with a run where it stopped."),
    "score": ("assay.cli.score", "Apply filters and metrics again to the answers a run has."),
    "verify": ("assay.cli.verify", "Say what changed since a run: data, prompts, code, versions."),
    "compare": (
        "assay.cli.compare",
        "Compare runs document by document: is one better, and how sure is that?",
    ),
    "explain": ("assay.cli.explain", "Say why two runs of the same benchmark differ."),
    "gate": (
        "assay.cli.gate",
        "Say whether a run may pass: floors, and no drop that chance does not explain.",
    ),
    "power": ("assay.cli.power", "Say how many documents a difference takes."),
    "calibrate": ("assay.cli.calibrate", "Hold a judge's scores against labels people gave."),
    "lint-benchmark": (
        "assay.cli.lint_benchmark",
        "Say what looks wrong with a benchmark, from several runs.",
    ),
    "view": ("assay.cli.view", "Look at runs, documents and comparisons in a browser."),
    "report": ("assay.cli.report", "Write runs as one HTML file to mail, or as PDF."),
    "table": ("assay.cli.table", "Print the numbers of runs as a table: text, Markdown, LaTeX, CSV."),
    "import": ("assay.cli.import_results", "Keep results of lm-eval or lmms-eval as runs."),
    "export": ("assay.cli.export", "Write a run in a format other programs read."),
    "new": ("assay.cli.new", "Write the files of a new task, model, metric or filter."),
    "cache": ("assay.cli.cache", "List and prune the answers that runs share."),
    "ls": ("assay.cli.ls", "List tasks, groups, tags, models, metrics, filters, options."),
}

_EXAMPLES = """\b
Examples:
  assay run                                   the embedded model on the embedded tasks
  assay run --tasks quickstart_addition -L 10
  assay show quickstart_shapes
  assay plan --tasks quickstart --json
"""


class _Commands(click.Group):
    """A group whose commands are imported when they are called, not before."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        name = name if name in COMMANDS else name.replace("_", "-")  # as flags may be written, too
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(self, context: click.Context, arguments: list[str]) -> Any:
        try:
            return super().resolve_command(context, arguments)
        except click.UsageError:
            close = get_close_matches(arguments[0], COMMANDS, n=1)
            guess = f"did you mean `{close[0]}`? " if close else ""
            raise UnknownName(
                f"no command is called `{arguments[0]}`", hint=f"{guess}`assay --help` shows all"
            ) from None


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from assay.core.installation import assay_version

        click.echo(f"assay {assay_version()}")
        context.exit()


app = _Commands(
    "assay",
    help=f"Evaluate language and multimodal models, and know how sure the score is.\n\n{_EXAMPLES}",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("-", "_"),
        "max_content_width": 110,
    },
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version and leave.",
        )
    ],
)


def call(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = app.main(args=arguments, prog_name="assay", standalone_mode=False, obj=list(arguments))
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.Abort, RunInterrupted):
        command = redact_assignments(shlex.join(["assay", *arguments]))
        click.echo(f"\ninterrupted: everything answered is saved; to go on:\n  {command}", err=True)
        return RunInterrupted.exit_code
    except AssayError as error:
        print_error(error)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return 0
    except click.ClickException as error:
        print_usage_error(error, arguments)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def print_error(error: AssayError) -> None:
    """What, where, hint; several problems one after the other."""
    if isinstance(error, ErrorGroup):
        for problem in error.errors:
            print_error(problem)
            click.echo("", err=True)
        click.secho(f"{error.what}", err=True, bold=True)
        return
    click.secho("error: ", err=True, fg="red", bold=True, nl=False)
    click.echo(escape_control_characters(redact(error.what)), err=True)
    if error.where:
        click.echo(escape_control_characters(redact(f"  at {error.where}")), err=True)
    if error.hint:
        click.secho("\nhint: ", err=True, fg="cyan", nl=False)
        click.echo(escape_control_characters(redact(error.hint)), err=True)


def print_usage_error(error: click.ClickException, arguments: list[str]) -> None:
    """An unknown flag or a missing value, in the same form as every other error."""
    message = error.format_message().rstrip(".")
    hint = ""
    if isinstance(error, click.NoSuchOption):
        message = f"no flag is called `{error.option_name}`"
        hint = f"did you mean `{error.possibilities[0]}`? " if error.possibilities else ""
    name = f"assay {arguments[0]}" if arguments and arguments[0] in COMMANDS else "assay"
    print_error(AssayError(message, hint=f"{hint}`{name} --help` shows all"))
