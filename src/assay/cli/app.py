"""The `assay` command group: lists the subcommands, imports one when it is called, prints errors."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TextIO

import click

from assay.core.errors import AssayError, ErrorGroup, MissingPackage, RunInterrupted, UnknownName

__all__ = ["run_command_line"]

COMMANDS = {
    "run": ("assay.cli.run", "Evaluate a model on tasks; repeat the command to continue."),
    "plan": ("assay.cli.plan", "Show what a run would do and list every problem."),
    "lock": ("assay.cli.lock", "Write or check a lockfile: everything that a score depends on."),
    "watch": ("assay.cli.watch", "Evaluate the checkpoints of a training run as they appear."),
    "sweep": ("assay.cli.sweep", "Run several models with several settings and print one table."),
    "launch": ("assay.cli.launch", "Run on a SLURM or Kubernetes cluster: write and submit the job files."),
    "check": ("assay.cli.check", "Check task files and list every problem before a run."),
    "show": ("assay.cli.show", "Show the exact prompts of a task, or wrong answers of a run."),
    "runs": ("assay.cli.runs", "List stored runs; show, repair or remove a run."),
    "resume": ("assay.cli.resume", "Continue an interrupted run."),
    "score": ("assay.cli.score", "Score the stored responses of a run again."),
    "verify": ("assay.cli.verify", "Show what changed since a run: data, prompts, code, versions."),
    "compare": (
        "assay.cli.compare",
        "Compare runs document by document, with p-values and confidence intervals.",
    ),
    "explain": ("assay.cli.explain", "Explain why two runs of the same benchmark have different scores."),
    "gate": (
        "assay.cli.gate",
        "Fail if a run misses a threshold or is significantly worse than a baseline.",
    ),
    "same": ("assay.cli.same", "Decide whether two runs or servers come from the same model."),
    "power": ("assay.cli.power", "Calculate how many documents are needed to detect a difference."),
    "calibrate": ("assay.cli.calibrate", "Compare a judge's scores with human labels."),
    "lint-benchmark": (
        "assay.cli.lint_benchmark",
        "Find suspicious documents of a benchmark from several runs.",
    ),
    "bridge": ("assay.cli.bridge", "Serve a model to external agents, and run them on documents."),
    "view": ("assay.cli.view", "Browse runs, documents and comparisons in a web browser."),
    "report": ("assay.cli.report", "Write a report of runs as a single HTML file or a PDF."),
    "table": ("assay.cli.table", "Print the scores of runs as a table: text, Markdown, LaTeX or CSV."),
    "import": ("assay.cli.import_results", "Import results of other programs as runs."),
    "export": ("assay.cli.export", "Export a run: JSONL, CSV, Parquet, JUnit, HTML, lm-eval, lmms-eval."),
    "new": ("assay.cli.new", "Create the files of a new task, model, metric or filter."),
    "bench": ("assay.cli.bench", "Measure the throughput of a model and its share of the ideal."),
    "cache": ("assay.cli.cache", "List and prune the response cache."),
    "ls": ("assay.cli.ls", "List tasks, groups, tags, models, metrics, filters, options."),
    "help": ("assay.cli.help", "Show the help of a command."),
    "version": ("assay.cli.version", "Show the version."),
}

_EXAMPLES = """\b
Examples:
  assay run                                   evaluate the embedded model on the embedded tasks
  assay run --tasks quickstart_addition -L 10
  assay show quickstart_shapes
  assay plan --tasks quickstart --json
"""


class _OutputClosed(Exception):
    """The program that reads the output has ended, as `head` does after its lines."""


@contextmanager
def _end_if_output_is_closed() -> Iterator[None]:
    """Raise `_OutputClosed` if the pipe to the reader is broken; click would replace the streams of the calling process."""
    try:
        yield
    except BrokenPipeError as error:
        if any(map(_has_lost_reader, (sys.stdout, sys.stderr))):
            raise _OutputClosed from error
        raise RuntimeError("a pipe of the command broke") from error  # click would exit without a message


def _has_lost_reader(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are always reported
    return bool(poll.poll(0))


class _LazyGroup(click.Group):
    """A command group that imports a command when it is called."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _end_if_output_is_closed():
            return super().make_context(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        with _end_if_output_is_closed():
            return super().invoke(context)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        name = name if name in COMMANDS else name.replace("_", "-")  # like flags, commands accept underscores
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
            from difflib import get_close_matches

            close = get_close_matches(arguments[0], COMMANDS, n=1)
            guess = f"did you mean `{close[0]}`? " if close else ""
            raise UnknownName(
                f"unknown command `{arguments[0]}`", hint=f"{guess}`assay --help` lists all commands"
            ) from None


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from assay.core.installation import assay_version

        click.echo(f"assay {assay_version()}")
        context.exit()


app = _LazyGroup(
    "assay",
    help=f"Evaluate language and multimodal models, with confidence intervals.\n\n{_EXAMPLES}",
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
            help="Show the version and exit.",
        )
    ],
)


def run_command_line(arguments: list[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        code = app.main(args=arguments, prog_name="assay", standalone_mode=False, obj=list(arguments))
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.Abort, RunInterrupted):
        click.echo(f"\n{_describe_interrupt(arguments)}", err=True)
        return RunInterrupted.exit_code
    except AssayError as error:
        print_error(error, has_tasks_flag=_has_tasks_flag(arguments))
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return 0
    except click.ClickException as error:
        print_usage_error(error, arguments)
        return 2
    except _OutputClosed:
        return 1


_RESUMABLE = ("run", "resume", "score", "sweep")
"""Commands that store responses as they arrive."""


def _describe_interrupt(arguments: list[str]) -> str:
    """Return what an interrupted command leaves behind."""
    from shlex import join

    from assay.core.secrets import redact_assignments

    command = redact_assignments(join(["assay", *arguments]))
    if arguments[:1] and arguments[0] in _RESUMABLE:
        return f"interrupted; all responses are saved. To continue:\n  {command}"
    return f"interrupted. To repeat:\n  {command}"


def _has_tasks_flag(arguments: list[str]) -> bool:
    return any(word == "-t" or word.partition("=")[0].replace("-", "_") == "__tasks" for word in arguments)


def print_error(error: AssayError, *, has_tasks_flag: bool = True) -> None:
    """Print an error to standard error: what, where, hint. Prints each error of a group, and how to install missing packages.

    Without `has_tasks_flag`, the tasks are arguments of the command, and an error does not refer to `--tasks`.
    """
    if isinstance(error, ErrorGroup):
        _print_error_group(error, has_tasks_flag=has_tasks_flag)
        return
    _print_single_error(error, has_tasks_flag=has_tasks_flag)
    if _find_install_command([error]):
        click.echo("", err=True)
        _print_install_command([error])


def _print_single_error(error: AssayError, *, has_tasks_flag: bool) -> None:
    click.secho("error: ", err=True, fg="red", bold=True, nl=False)
    _print_safely(error.what)
    if error.where and (has_tasks_flag or error.where != "--tasks"):
        _print_safely(f"  at {error.where}")
    if error.hint:
        click.secho("\nhint: ", err=True, fg="cyan", nl=False)
        _print_safely(error.hint)


def _print_safely(text: str) -> None:
    """Print a text to standard error without secrets and control characters."""
    from assay.core.secrets import redact
    from assay.core.terminal_text import escape_control_characters

    click.echo(escape_control_characters(redact(text)), err=True)


def _print_error_group(group: ErrorGroup, *, has_tasks_flag: bool) -> None:
    """Print each error of a group, each missing package once, and one command that installs all of them."""
    printed: set[str] = set()
    for problem in group.errors:
        if isinstance(problem, MissingPackage):
            if problem.hint in printed:
                continue
            printed.add(problem.hint)
        _print_single_error(problem, has_tasks_flag=has_tasks_flag)
        click.echo("", err=True)
    _print_install_command(group.errors)
    click.secho(f"{group.what}", err=True, bold=True)


def _print_install_command(errors: Sequence[AssayError]) -> None:
    if install := _find_install_command(errors):
        click.echo(f"install: {install}", err=True)


def _find_install_command(errors: Sequence[AssayError]) -> str:
    """Return one command that installs every missing package, also those that a file imports later; empty for one package."""
    from assay.core.installation import merge_install_commands

    packages = [error for error in errors if isinstance(error, MissingPackage)]
    commands = {command: None for error in packages for command in (error.hint, *error.others)}
    return merge_install_commands(commands) if len(commands) > 1 else ""


def print_usage_error(error: click.ClickException, arguments: list[str]) -> None:
    """Print a usage error, such as an unknown option, in the format of all other errors."""
    message = error.format_message().rstrip(".")
    hint = ""
    if isinstance(error, click.NoSuchOption):
        message = f"unknown option `{error.option_name}`"
        hint = f"did you mean `{error.possibilities[0]}`? " if error.possibilities else ""
    context = error.ctx if isinstance(error, click.UsageError) else None
    name = f"assay {arguments[0]}" if arguments and arguments[0] in COMMANDS else "assay"
    name = context.command_path if context else name
    print_error(AssayError(message, hint=f"{hint}`{name} --help` lists all options"))
