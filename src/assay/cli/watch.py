"""`assay watch`: evaluate the checkpoints of a training run as they appear."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import print_json, split_names
from assay.cli.options import OptionsCommand, add_run_options, collect_options
from assay.cli.run_output import start_logging
from assay.core.errors import AssayError, InvalidOption, RunLocked
from assay.core.options.run_spec import list_options
from assay.core.secrets import register_secret
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.cli.sweep_processes import RunProcess
    from assay.engine.watching.checkpoints import Checkpoint, CheckpointFinder
    from assay.engine.watching.hooks import HookDispatcher
    from assay.store.runs.watches import CheckpointRecord, Watch
    from assay.viewer.training_curves.curve import CurveReader, TrainingCurve

__all__ = ["command"]

_HELP = """Evaluate the checkpoints of a training run as they appear, and draw the curve.

CHECKPOINTS is the folder that the training writes to. A checkpoint is evaluated once, when it is complete: all shards and all
bytes of its safetensors files are there, `trainer_state.json` or the done marker is written, or its files stopped changing.
The model is `hf` with `pretrained={checkpoint}`; other models take the checkpoint in their arguments. To continue after an
interruption, repeat the command: finished runs stay, and an interrupted one continues.

After each checkpoint the curve with intervals is written to the folder of the watch (curve.svg, curve.csv), and checkpoints
are compared on the same documents. A regression raises an alarm; over the whole training run, the probability of any
false alarm is at most --alpha. `assay view` shows the curve and refreshes itself.

\b
Examples:
  assay watch out/ --tasks gsm8k --limit 200
  assay watch out/ --tasks arc_easy --order even --once
  assay watch out/ --tasks arc_easy --until 10000 --on_regression './pause-training.sh'
  assay watch out/ --tasks arc_easy --pattern 'step_*/hf' --done_marker DONE --jobs 2
  assay watch out/ --tasks arc_easy --model llamacpp --model_args 'model={checkpoint}' --pattern '*.gguf'
"""
_TOKEN_VARIABLE = "ASSAY_WATCH_TOKEN"
_CHECKED_OPTIONS = (
    "tasks", "include_path", "data_root", "allow_data_outside", "limit", "offset", "num_fewshot", "metadata", "variants",
    "trust_remote_code", "confirm_run_unsafe_code", "sandbox", "i_know", "sandbox_args",
)  # fmt: skip
"""Options whose problems are reported before the first checkpoint is there."""


@click.command("watch", cls=OptionsCommand, help=_HELP)
@click.argument("checkpoints", metavar="CHECKPOINTS", type=click.Path(path_type=Path))
@click.option(
    "--pattern", "patterns", multiple=True, metavar="GLOB",
    help="Names of checkpoints, relative to CHECKPOINTS; repeatable. [default: checkpoint-*, step_*, epoch_*, …]",
)  # fmt: skip
@click.option(
    "--done_marker", metavar="NAME", default="", help="File that the training writes last into a checkpoint."
)
@click.option(
    "--settle", type=click.FloatRange(min=0), default=10.0, metavar="SECONDS",
    help="Without a marker, files must be unchanged for this long. [default: 10]",
)  # fmt: skip
@click.option(
    "--order", type=click.Choice(["newest", "even", "oldest"]), default="newest",
    help="Which waiting checkpoint is next; `even` covers the whole training first. [default: newest]",
)  # fmt: skip
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of concurrent runs. [default: 1]",
)
@click.option("--once", is_flag=True, help="Evaluate what is there, then stop.")
@click.option(
    "--until",
    type=float,
    metavar="STEP",
    help="Stop when a checkpoint at or after STEP is there and those up to STEP are evaluated.",
)
@click.option(
    "--idle_timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop if no checkpoint appears for this long.",
)
@click.option(
    "--poll", type=click.FloatRange(min=0.05), default=10.0, metavar="SECONDS",
    help="Pause between searches for checkpoints. [default: 10]",
)  # fmt: skip
@click.option(
    "--max_attempts",
    type=click.IntRange(min=1),
    default=3,
    metavar="N",
    help="Attempts for each checkpoint. [default: 3]",
)
@click.option(
    "--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, metavar="RATE",
    help="Probability of any false alarm over the whole training run, all tasks together. [default: 0.05]",
)  # fmt: skip
@click.option(
    "--alarm_task",
    "alarm_tasks",
    multiple=True,
    metavar="TASK",
    help="Task with alarms; repeatable. [default: all]",
)
@click.option(
    "--on_result",
    multiple=True,
    metavar="COMMAND",
    help="Shell command for each result; JSON on its standard input.",
)
@click.option(
    "--on_regression", multiple=True, metavar="COMMAND", help="Shell command for each new regression."
)
@click.option(
    "--webhook",
    "webhooks",
    multiple=True,
    metavar="URL",
    help="URL that gets results and regressions as JSON.",
)
@click.option(
    "--submit_port", type=click.IntRange(0, 65535), metavar="N",
    help=f"Serve an HTTP API to submit checkpoints; its token is ${_TOKEN_VARIABLE} or written to a file (0: a free port).",
)  # fmt: skip
@click.option(
    "--submit_host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Address of the HTTP API. [default: 127.0.0.1]",
)
@click.option("--curve", "curves", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Also write the curve to FILE: .svg, .png or .csv; repeatable.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the curve as JSON at the end.")
@click.option(
    "-v", "--verbosity", default="WARNING", metavar="LEVEL", help="Log level: DEBUG, INFO, WARNING or ERROR."
)
def command(checkpoints: Path, verbosity: str, as_json: bool, config: Path | None, **values: Any) -> None:
    """Run the command; its help text is above."""
    start_logging(verbosity)
    own = {name: values.pop(name) for name in _OWN_OPTIONS}
    options = collect_options(values, config)
    for path in own["curves"]:
        if path.suffix not in (".svg", ".png", ".csv"):
            raise InvalidOption(
                f"unsupported format `{path.name}`",
                where="--curve",
                hint="use FILE.svg, FILE.png or FILE.csv",
            )
    _run_watch(checkpoints, options, own, as_json=as_json)


_OWN_OPTIONS = (
    "patterns", "done_marker", "settle", "order", "jobs", "once", "until", "idle_timeout", "poll", "max_attempts", "alpha",
    "alarm_tasks", "on_result", "on_regression", "webhooks", "submit_port", "submit_host", "curves",
)  # fmt: skip


def _add_model_option() -> None:
    """Add `--model` with the default of a watch."""
    option = click.Option(
        ["--model", "-M"], metavar="NAME", help="The model that loads the checkpoints. [default: hf]"
    )
    option.section = "Model"  # type: ignore[attr-defined]
    command.params.append(option)


_add_model_option()
add_run_options(command, [name for name, _, _ in list_options() if name != "model"])


def _run_watch(checkpoints: Path, given: Mapping[str, Any], own: Mapping[str, Any], *, as_json: bool) -> None:
    from assay.cli.sweep_processes import forward_signals
    from assay.core.options.run_spec import RunSpec
    from assay.engine.planning.manifests.run_names import get_output_folder
    from assay.engine.watching.checkpoints import DEFAULT_PATTERNS, CheckpointFinder
    from assay.engine.watching.hooks import HookDispatcher, Hooks, check_webhook
    from assay.engine.watching.run_options import complete_watch_options, compute_watch_digest
    from assay.engine.watching.submissions import Submissions
    from assay.engine.watching.watcher import Watcher, WatchLimits
    from assay.store.database.locks import RunLock
    from assay.store.runs.watches import Watch, WatchSettings

    folder = checkpoints.expanduser().resolve()
    finder = CheckpointFinder(
        folder, tuple(own["patterns"]) or DEFAULT_PATTERNS, own["done_marker"], own["settle"]
    )
    found = finder.find()  # a wrong folder or pattern is an error at the start
    options = complete_watch_options(given)
    spec = RunSpec.of(options)
    alarm_tasks = tuple(split_names(own["alarm_tasks"]))
    hooks = Hooks(
        on_result=own["on_result"],
        on_regression=own["on_regression"],
        webhooks=[check_webhook(url) for url in own["webhooks"]],
    )
    _check_tasks(options, alarm_tasks)
    _check_model(options, folder)
    watch = Watch(get_output_folder(spec) / f"watch-{compute_watch_digest(options, str(folder))}")
    lock = RunLock(watch.folder)
    try:
        lock.acquire()
    except RunLocked as error:
        error.what = f"these checkpoints are watched already: {error.what}"
        raise
    with ExitStack() as stack:
        stack.callback(lock.release)
        watch.write_settings(
            WatchSettings(
                checkpoints=str(folder), tasks=tuple(spec.tasks), alpha=own["alpha"], alarm_tasks=alarm_tasks
            )
        )
        dispatcher = HookDispatcher(hooks, on_delivered=watch.add_event, on_problem=_print_warning)
        stack.callback(dispatcher.close)
        processes: list[RunProcess] = []
        reporter = _Reporter(watch, dispatcher, tuple(own["curves"]))
        watcher = Watcher(
            finder,
            watch,
            _ProcessLauncher(options, watch, processes),
            WatchLimits(
                order=own["order"],
                jobs=own["jobs"],
                poll_s=own["poll"],
                once=own["once"],
                until=own["until"],
                idle_timeout_s=own["idle_timeout"],
                max_attempts=own["max_attempts"],
            ),
            Submissions(watch.folder / "submissions.json"),
            reporter.report_outcome,
            _print_warning,
        )
        stack.enter_context(_serve_submit_api(own, watcher.submissions, finder, watch, watcher.wake))
        click.echo(f"watching {folder}  ({watch.folder})", err=True)
        if not found:
            _print_warning(f"no checkpoint matches {', '.join(finder.patterns)} so far")
        reporter.publish()
        stack.enter_context(forward_signals(processes, "watch"))
        records = watcher.run()
        incomplete = [row for row in watcher.describe()["checkpoints"] if row["state"] == "incomplete"]
    _finish(reporter, records, incomplete, as_json=as_json)


def _check_tasks(options: Mapping[str, Any], alarm_tasks: tuple[str, ...]) -> None:
    """Report problems of the tasks before the first checkpoint is there."""
    from assay import api
    from assay.core.errors import UnknownName
    from assay.core.options.run_spec import RunSpec

    checked = {name: options[name] for name in _CHECKED_OPTIONS if name in options}
    plan = api.plan(RunSpec.of({**checked, "model": "dummy"}))
    for name, group in plan.groups.items():
        if group.is_family:
            raise InvalidOption(
                f"a watch needs one prompt per document, and `{name}` has {len(group.members)}",
                where="--tasks",
                hint="add --variants 1 for the unchanged prompt",
            )
    for task in alarm_tasks:
        if task not in plan.tasks:
            raise UnknownName.of("task of the watch", task, sorted(plan.tasks), where="--alarm_task")


def _check_model(options: Mapping[str, Any], folder: Path) -> None:
    """Report problems of the model that every checkpoint would have: an unknown name and, for Assay's models, wrong arguments.

    Problems of the checkpoint itself name its path. Classes of the user are not created without a checkpoint.
    """
    from assay import api
    from assay.core.errors import ErrorGroup, UserError
    from assay.core.options.run_spec import RunSpec
    from assay.engine.planning.setup.model_setup import register_model_class
    from assay.engine.watching.checkpoints import Checkpoint
    from assay.engine.watching.run_options import build_run_options
    from assay.models import BUILTIN_MODELS, MODELS

    register_model_class(options["model"])
    MODELS.get(options["model"], where="--model")
    if not any(options["model"] in entry.names for entry in BUILTIN_MODELS):
        return
    example = Checkpoint(name="checkpoint-0", path=folder / "checkpoint-0", step=0.0, stamp="")
    try:
        api.plan(RunSpec.of(build_run_options(options, example)))
    except UserError as error:
        errors = error.errors if isinstance(error, ErrorGroup) else [error]
        common = [one for one in errors if str(example.path) not in f"{one.what} {one.where}"]
        if common:
            raise (common[0] if len(common) == 1 else ErrorGroup(common)) from None


@contextmanager
def _serve_submit_api(
    own: Mapping[str, Any], submissions: Any, finder: CheckpointFinder, watch: Watch, wake: threading.Event
) -> Iterator[None]:
    """Serve the HTTP API if it is wanted. A new token is written to a file that only the user can read."""
    if own["submit_port"] is None:
        yield
        return
    from assay.engine.watching.submit_server import serve_submissions

    token, place = os.environ.get(_TOKEN_VARIABLE, ""), f"${_TOKEN_VARIABLE}"
    if not token:
        token, path = secrets.token_urlsafe(24), watch.folder / "token"
        with suppress(FileNotFoundError):
            path.unlink()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
        place = str(path)
    register_secret(token)
    with serve_submissions(
        submissions, finder, token=token, wake=wake, host=own["submit_host"], port=own["submit_port"]
    ) as url:
        click.echo(f"submit API {url}  (token in {place})", err=True)
        yield


@dataclass(slots=True)
class _ProcessLauncher:
    """Plans runs here and executes each of them in a process of its own."""

    options: Mapping[str, Any]
    watch: Watch
    processes: list[RunProcess]

    def plan(self, checkpoint: Checkpoint, *, refresh: bool) -> Path:
        from assay import api
        from assay.core.options.run_spec import RunSpec
        from assay.engine.watching.run_options import build_run_options

        return api.plan(RunSpec.of(build_run_options(self.options, checkpoint))).folder

    def start(self, checkpoint: Checkpoint, *, refresh: bool) -> RunProcess:
        from assay.cli.sweep_processes import start_run
        from assay.engine.watching.run_options import build_run_options

        self.processes[:] = [one for one in self.processes if one.poll() is None]
        options = build_run_options(self.options, checkpoint, refresh=refresh)
        name = escape_control_characters(checkpoint.name)
        process = start_run(name, options, "evaluating", self.watch.folder / "logs")
        self.processes.append(process)
        return process


@dataclass(slots=True)
class _Reporter:
    """Prints outcomes, writes the curve, and sends events to hooks."""

    watch: Watch
    dispatcher: HookDispatcher
    files: tuple[Path, ...]
    _reader: CurveReader | None = None
    _sent: set[str] = field(default_factory=set)

    def report_outcome(self, record: CheckpointRecord) -> None:
        """Print what became of a checkpoint."""
        name = escape_control_characters(record.name)
        if record.outcome == "finished":
            curve = self.publish()
            _print_point(curve, record, name)
        else:
            reason = escape_control_characters(record.reason)
            click.secho(
                f"{name}: {record.outcome}: {reason}",
                err=True,
                fg="yellow" if record.outcome == "deleted" else "red",
            )

    def publish(self) -> TrainingCurve:
        """Write the curve as files, and send the events that were not delivered yet."""
        from assay.viewer.training_curves.drawing import write_curve

        curve = self.read()
        for path in (self.watch.folder / "curve.svg", self.watch.folder / "curve.csv", *self.files):
            try:
                write_curve(curve, path)
            except AssayError as error:
                _print_warning(error.what)
        self._send_events(curve)
        return curve

    def read(self) -> TrainingCurve:
        """Return the curve as it is now."""
        from assay.viewer.training_curves.curve import CurveReader

        if self._reader is None:
            self._reader = CurveReader(self.watch)
            self._sent = self.watch.read_events()
        return self._reader.read()

    def _send_events(self, curve: TrainingCurve) -> None:
        from assay.viewer.training_curves.formats import build_checkpoint_payload, describe_alarm

        settings = {"folder": curve.settings.checkpoints, "watch": str(self.watch.folder)}
        for record in curve.records.values():
            if record.outcome != "finished":
                continue
            points = build_checkpoint_payload(curve, record.name)
            first = next(iter(points.values()), {})
            payload = {
                "event": "result", **settings, "checkpoint": record.name, "step": record.step, "run": record.run,
                "score": first.get("value"), "tasks": points,
            }  # fmt: skip
            self._send(f"result:{record.name}:{record.run}", payload)
        for task in curve.tasks:
            for alarm in task.alarms:
                identity = f"regression:{task.task}:{alarm.checkpoint}:{curve.records[alarm.checkpoint].run}"
                if not alarm.is_new or identity in self._sent:
                    continue
                text = describe_alarm(task, alarm)
                click.secho(escape_control_characters(f"REGRESSION {text}"), err=True, fg="red", bold=True)
                drop = alarm.regression
                payload = {
                    "event": "regression", **settings, "checkpoint": alarm.checkpoint, "task": task.task,
                    "metric": task.metric, "difference": drop.difference, "p_value": drop.p_value, "level": drop.level,
                    "alpha": curve.settings.alpha, "earlier_steps": list(drop.earlier), "later_steps": list(drop.later),
                    "message": text,
                }  # fmt: skip
                self._send(identity, payload)

    def _send(self, identity: str, payload: Mapping[str, Any]) -> None:
        if identity not in self._sent:
            self._sent.add(identity)
            self.dispatcher.send(identity, payload)


def _print_point(curve: TrainingCurve, record: CheckpointRecord, name: str) -> None:
    from assay.cli.tables import echo_wrapped
    from assay.viewer.training_curves.formats import describe_checkpoint

    for line in describe_checkpoint(curve, record.name):
        echo_wrapped(escape_control_characters(f"{name}: {line}"), err=True)


def _print_warning(text: str) -> None:
    click.secho(f"warning: {escape_control_characters(text)}", err=True, fg="yellow")


def _finish(
    reporter: _Reporter,
    records: Mapping[str, CheckpointRecord],
    incomplete: list[dict[str, Any]],
    *,
    as_json: bool,
) -> None:
    """Print the curve and raise an error if a checkpoint failed."""
    from assay.cli.tables import echo_wrapped, print_table
    from assay.viewer.training_curves.formats import (
        build_curve_table,
        curve_to_json,
        describe_alarm,
        describe_best,
    )

    curve = reporter.read()
    if as_json:
        files = [str(reporter.watch.folder / name) for name in ("curve.svg", "curve.csv")]
        waiting = [{"name": row["name"], "reason": row["reason"]} for row in incomplete]
        print_json({**curve_to_json(curve), "incomplete": waiting, "files": files})
    else:
        for task in curve.tasks:
            click.echo(f"\n{escape_control_characters(task.task)}")
            print_table(build_curve_table(task))
            lines = [
                describe_best(task),
                *(f"regression: {describe_alarm(task, one)}" for one in task.alarms if one.is_new),
            ]
            for line in (*lines, task.note):
                if line:
                    echo_wrapped(escape_control_characters(line))
        for row in incomplete:
            echo_wrapped(escape_control_characters(f"incomplete: {row['name']}: {row['reason']}"))
        for line in curve.notes:
            echo_wrapped(escape_control_characters(f"note: {line}"))
        click.echo(f"curve     {reporter.watch.folder / 'curve.svg'}")
        click.echo(f"`assay view {reporter.watch.run_folder}` shows the curve in a browser")
    failed = [name for name, record in records.items() if record.outcome == "failed"]
    if failed:
        raise AssayError(
            f"{len(failed)} of {len(records)} checkpoints failed: {', '.join(failed)}",
            where=str(reporter.watch.folder / "logs"),
            hint="repeat the command to continue them",
        )
