"""`assay launch`: write the job files of a run on a SLURM or Kubernetes cluster, and submit them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import print_json
from assay.cli.options import OptionsCommand, add_run_options, collect_options
from assay.core.errors import InvalidOption, OutputError, UserError
from assay.core.options.run_spec import RunSpec, list_options
from assay.core.secrets import contains_redacted, redact_assignments, register_secrets_in
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.engine.cluster_jobs.job import ClusterJob

__all__ = ["command"]

_HELP = """Run on a SLURM or Kubernetes cluster: write the job files and submit them.

The job starts a Ray cluster and `assay run` on it, with the options of `assay run` that you pass. It continues where it stopped when it is
queued again. --dry_run only writes the files; without it, `sbatch` or `kubectl` must be installed. The files contain no secrets: pass
the names of environment variables with --env. The files were not tested on a real cluster: look at them first.

\b
Examples:
  assay launch slurm --dry_run --nodes 4 --gpus 4 --config run.yaml
  assay launch k8s --dry_run --image registry/assay:1 --config run.yaml \\
      --volume results:/results -o /results/mmlu
"""

_SLURM_HELP = """Write a batch script for SLURM and submit it with sbatch.

The first node runs the Ray head and `assay run`, the other nodes run Ray workers. Two minutes before the time limit the run saves its state
and the job is queued again. Accepts the options of `assay run`.

\b
Examples:
  assay launch slurm --dry_run --nodes 2 --gpus 4 --model vllm \\
      --model_args pretrained=/shared/NAME --tasks mmlu
  assay launch slurm --gpus 1 --partition gpu --time 2:00:00 --config run.yaml \\
      --setup 'source .venv/bin/activate'
"""

_KUBERNETES_HELP = """Write a RayJob for Kubernetes (KubeRay operator) and apply it with kubectl.

The head pod runs `assay run`, worker pods run the replicas. A job that fails starts again and continues. --output_path must be on a volume.
Ray accepts only connections with a token, which the operator creates: this needs KubeRay 1.5.1 and Ray 2.52 or later.
Accepts the options of `assay run`.

\b
Examples:
  assay launch k8s --dry_run --image registry/assay:1 --gpus 1 \\
      --volume results:/results -o /results/arc \\
      --model hf --model_args pretrained=org/NAME --tasks arc_easy
  assay launch k8s --image registry/assay:1 --nodes 2 --gpus 4 \\
      --volume results:/results -o /results/x --env HF_TOKEN --secret keys \\
      --config run.yaml
"""

_SECRET_VARIABLE = re.compile(r"(?:_|^)(?:API_?KEY|ACCESS_KEY|SECRET_KEY|TOKEN|SECRET|PASSWORD)$")


_SHELL_SUBSTITUTION = re.compile(r"""=["']?(?:\$\([^)]*\)|`[^`]*`|\$\{?\w+\}?)["']?(?=\s|;|&|$)""")
"""A value that the shell computes in the job: `NAME=$(cat FILE)`, `NAME=$OTHER`."""


@click.group("launch", help=_HELP)
def command() -> None:
    """Group the kinds of clusters; the help text is above."""


def _add_job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both kinds of clusters share."""
    options = [
        click.option("--dry_run", is_flag=True, help="Write the files without submitting them."),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            default=Path("assay-jobs"),
            metavar="DIR",
            help="Folder of the job files. [default: assay-jobs]",
        ),
        click.option("--job_name", metavar="NAME", help="Name of the job. [default: the model and the first task]"),
        click.option("--nodes", type=click.IntRange(min=1), default=1, metavar="N", help="Nodes (Kubernetes: worker pods). [default: 1]"),
        click.option("--gpus", type=click.IntRange(min=0), default=0, metavar="N", help="GPUs per node. [default: 0]"),
        click.option("--cpus", type=click.IntRange(min=1), default=8, metavar="N", help="CPUs per node. [default: 8]"),
        click.option("--memory", metavar="SIZE", help="Memory per node: 64G (SLURM), 64Gi (Kubernetes)."),
        click.option("--time", "time_limit", metavar="TIME", help="Time limit: 4:00:00, 2-00:00:00."),
        click.option("--env", "environment", multiple=True, metavar="NAME", help="Name of an environment variable that the run needs; repeatable."),
        click.option("--locked", type=click.Path(path_type=Path), metavar="FILE", help="Run a lockfile of `assay lock`."),
        click.option("--allow_drift", multiple=True, metavar="KINDS", help="With --locked: accept differences of these kinds."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return click.argument("task_names", nargs=-1, metavar="[TASKS]...")(function)


@command.command("slurm", cls=OptionsCommand, help=_SLURM_HELP)
@_add_job_options
@click.option("--partition", metavar="NAME", help="Partition.")
@click.option("--account", metavar="NAME", help="Account.")
@click.option("--sbatch", "directives", multiple=True, metavar="KEY=VALUE", help="Further #SBATCH option: qos=high; repeatable.")  # fmt: skip
@click.option(
    "--setup", multiple=True, metavar="COMMAND", help="Shell command before Ray starts; repeatable."
)
@click.option("--max_restarts", type=click.IntRange(min=0), default=20, metavar="N", help="How often the job is queued again at its time limit. [default: 20]")  # fmt: skip
def slurm(
    partition: str | None,
    account: str | None,
    directives: tuple[str, ...],
    setup: tuple[str, ...],
    max_restarts: int,
    **given: Any,
) -> None:
    """Run the command; its help text is above."""
    from assay.engine.cluster_jobs.slurm import SlurmSettings, format_sbatch

    request = _read_request(given)
    for one in setup:
        if "\n" in one or "\r" in one:
            raise InvalidOption(
                "a command must be one line", where="--setup", hint="repeat --setup for several"
            )
        register_secrets_in(one)
        if contains_redacted(redact_assignments(_SHELL_SUBSTITUTION.sub(" ", one))):
            raise InvalidOption(
                "a command contains a secret, which would be written to the job file",
                where="--setup",
                hint="set the variable before you submit the job, and pass its name with --env NAME",
            )
    settings = SlurmSettings(
        log_folder=(request.folder / "logs").as_posix(),
        partition=partition,
        account=account,
        directives=_parse_pairs(directives, "--sbatch"),
        setup=setup,
        max_restarts=max_restarts,
    )
    script = format_sbatch(request.job, settings)
    path = request.folder / f"{request.job.name}.sbatch"
    _write(path, script, logs=request.folder / "logs")
    _finish(request, path, ["sbatch", "--parsable", str(path)])


@command.command("k8s", cls=OptionsCommand, help=_KUBERNETES_HELP)
@_add_job_options
@click.option(
    "--image",
    required=True,
    metavar="IMAGE",
    help="Container image with Assay, Ray and the packages of the model.",
)
@click.option("--namespace", metavar="NAME", help="Namespace. [default: that of kubectl]")
@click.option("--volume", "volumes", multiple=True, metavar="CLAIM:DIR", help="Persistent volume claim and its folder in the pods; repeatable.")  # fmt: skip
@click.option("--secret", metavar="NAME", help="Secret with the values of the variables of --env.")
@click.option("--retries", type=click.IntRange(min=0), default=3, metavar="N", help="How often a failed job starts again. [default: 3]")  # fmt: skip
@click.option("--node_selector", multiple=True, metavar="KEY=VALUE", help="Label of the nodes for worker pods; repeatable.")  # fmt: skip
@click.option("--gpu_resource", default="nvidia.com/gpu", metavar="NAME", help="Resource name of a GPU. [default: nvidia.com/gpu]")  # fmt: skip
@click.option("--ray_version", metavar="VERSION", help="Version of Ray in the image. [default: 2.52.0]")
@click.option("--no_ray_token", is_flag=True, help="Accept connections to Ray without a token, for KubeRay before 1.5.1: anyone who can reach the pods can run code in them.")  # fmt: skip
def k8s(
    image: str,
    namespace: str | None,
    volumes: tuple[str, ...],
    secret: str | None,
    retries: int,
    node_selector: tuple[str, ...],
    gpu_resource: str,
    ray_version: str | None,
    no_ray_token: bool,
    **given: Any,
) -> None:
    """Run the command; its help text is above."""
    from assay.engine.cluster_jobs.kubernetes import (
        KubernetesSettings,
        check_output_path,
        format_ray_job,
        is_on_volume,
        parse_volume,
    )

    request = _read_request(given)
    settings = KubernetesSettings(
        image=image,
        namespace=namespace,
        volumes=tuple(map(parse_volume, volumes)),
        secret=secret,
        retries=retries,
        gpu_resource=gpu_resource,
        node_selector=_parse_pairs(node_selector, "--node_selector"),
        ray_version=ray_version,
        requires_token=not no_ray_token,
    )
    check_output_path(request.spec.output_path, settings.volumes)
    elsewhere = [file for file in _list_files(request) if not is_on_volume(file, settings.volumes)]
    if elsewhere:
        note = f"the pods read {', '.join(elsewhere)} from the image: no volume contains it"
        request = replace(request, notes=(*request.notes, note))
    path = request.folder / f"{request.job.name}.yaml"
    _write(path, format_ray_job(request.job, settings))
    _finish(request, path, ["kubectl", "apply", "-f", str(path)])


_EXCLUDED_OPTIONS = {"ray"}
for _command in (slurm, k8s):
    for _parameter in _command.params:
        _parameter.section = "Job"  # type: ignore[attr-defined]
    add_run_options(_command, [name for name, _, _ in list_options() if name not in _EXCLUDED_OPTIONS])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A job, and how to report it."""

    job: ClusterJob
    spec: RunSpec
    locked: Path | None
    folder: Path
    dry_run: bool
    as_json: bool
    notes: tuple[str, ...]


def _read_request(given: dict[str, Any]) -> _Request:
    """Return the job that the shared options describe."""
    from assay.engine.cluster_jobs.job import (
        ClusterJob,
        build_job_name,
        build_run_words,
        choose_replicas,
        parse_time_limit_s,
    )

    names = ("dry_run", "output", "job_name", "nodes", "gpus", "cpus", "memory", "time_limit", "environment")
    shared = {
        name: given.pop(name) for name in (*names, "locked", "allow_drift", "as_json", "task_names", "config")
    }
    if shared["task_names"]:
        listed = [name for word in shared["task_names"] for name in word.split(",") if name]
        given["tasks"] = (*(given.get("tasks") or ()), listed)
    options = collect_options(given, shared["config"])
    spec = _build_spec(options, shared["locked"])
    if shared["time_limit"] is not None:
        parse_time_limit_s(shared["time_limit"])
    replicas = choose_replicas(spec, shared["nodes"], shared["gpus"], given="replicas" in options)
    words, hidden = build_run_words(options)
    if shared["locked"] is not None:
        accepted = [word for kinds in shared["allow_drift"] for word in ("--allow_drift", kinds)]
        words = ["--locked", str(shared["locked"]), *accepted, *words]
    if "replicas" not in options:
        words += ["--replicas", str(replicas)]
    job = ClusterJob(
        name=build_job_name(spec, shared["job_name"]),
        command=("assay", "run", *words),
        nodes=shared["nodes"],
        gpus=shared["gpus"],
        cpus=shared["cpus"],
        memory=shared["memory"],
        time=shared["time_limit"],
        environment=tuple(dict.fromkeys(shared["environment"])),
    )
    return _Request(
        job=job,
        spec=spec,
        locked=shared["locked"],
        folder=shared["output"],
        dry_run=shared["dry_run"],
        as_json=shared["as_json"],
        notes=(*_list_notes(hidden, job.environment), *_list_unknown_tasks(spec)),
    )


def _build_spec(options: dict[str, Any], locked: Path | None) -> RunSpec:
    if locked is None:
        return RunSpec.of(options)
    from assay.engine.lockfiles.locked_options import build_locked_spec
    from assay.engine.lockfiles.lockfile import read_lock

    return build_locked_spec(read_lock(locked), options)


def _list_notes(hidden: Sequence[str], environment: Sequence[str]) -> list[str]:
    """Return warnings about secrets: those that were left out, and variables that are set here and not passed."""
    notes = [
        f"not written because it is a secret: {name}; use an environment variable and --env NAME"
        for name in hidden
    ]
    unset = sorted(
        name for name in os.environ if _SECRET_VARIABLE.search(name.upper()) and name not in environment
    )
    if unset:
        notes.append(f"set here, but not passed with --env: {', '.join(unset)}")
    return notes


def _list_unknown_tasks(spec: RunSpec) -> list[str]:
    """Return warnings about tasks that are not here. The cluster may have them."""
    from assay.engine.planning.option_checks import find_unknown_names

    problems = find_unknown_names({"tasks": spec.tasks, "include_path": spec.include_path})
    return [
        f"{problem.what} on this machine; the job fails unless this is different on the cluster"
        for problem in problems
    ]


def _list_files(request: _Request) -> list[str]:
    """Return the files and folders that the command of the job names: the lockfile, task files, folders of tasks and data."""
    spec = request.spec
    if request.locked is not None:  # its paths are relative to it
        return [str(request.locked)]
    tasks = [task for task in spec.tasks if task.endswith((".yaml", ".yml")) or "/" in task]
    return [*tasks, *spec.include_path, *([spec.data_root] if spec.data_root else [])]


def _parse_pairs(words: Sequence[str], where: str) -> dict[str, str]:
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not (separator and key and value):
            raise InvalidOption(f"`{word}` is not KEY=VALUE", where=where)
        found[key] = value
    return found


def _write(path: Path, text: str, logs: Path | None = None) -> None:
    try:
        (logs or path.parent).mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise OutputError(f"cannot write the job file: {error.strerror}", where=str(path)) from None


def _finish(request: _Request, path: Path, submit: list[str]) -> None:
    """Submit the job unless this is a dry run, and report it."""
    from assay.cli.tables import echo_wrapped

    submitted = "" if request.dry_run else _submit(submit, path)
    for note in request.notes:
        echo_wrapped(f"warning: {escape_control_characters(note)}", err=True)
    if request.as_json:
        print_json(
            {
                "file": str(path),
                "name": request.job.name,
                "command": list(request.job.command),
                "submitted": submitted or None,
                "warnings": list(request.notes),
            }
        )
        return
    click.echo(f"written: {path}")
    click.echo(
        escape_control_characters(f"submitted: {submitted}")
        if submitted
        else f"submit it with: {shlex.join(submit)}"
    )


def _submit(words: list[str], path: Path) -> str:
    """Run `sbatch` or `kubectl`, and return what it prints."""
    program = shutil.which(words[0])
    if program is None:
        raise UserError(
            f"`{words[0]}` is not installed here",
            where=str(path),
            hint=f"the file is written; submit it where `{words[0]}` is installed, or pass --dry_run",
        )
    done = subprocess.run(
        [program, *words[1:]],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(
            f"`{words[0]}` failed (exit code {done.returncode}): {reason[-1] if reason else 'no message'}",
            where=str(path),
            hint=f"try it yourself: {shlex.join(words)}",
        )
    return done.stdout.strip()
