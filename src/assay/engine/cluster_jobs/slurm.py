"""The batch script of a SLURM job: a Ray head and the run on the first node, Ray workers on the others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.core.errors import InvalidOption
from assay.engine.cluster_jobs.job import ClusterJob, parse_time_limit_s

__all__ = ["SlurmSettings", "format_sbatch"]

_VALUE = re.compile(r"[\w.,:@+=%/()\[\]-]+")
_RESERVED = frozenset("job-name nodes ntasks-per-node output open-mode requeue signal".split())
"""Directives that the script sets itself."""

_WARNING_S = 120
"""Time between the warning signal and the time limit: the run saves its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """What only SLURM needs."""

    log_folder: str
    partition: str | None = None
    account: str | None = None
    directives: Mapping[str, str] = field(default_factory=dict)
    """Further directives: `qos` -> `high`."""

    setup: tuple[str, ...] = ()
    """Shell commands before Ray starts: modules, environments."""

    max_restarts: int = 20
    """How often the job is queued again when it reaches its time limit."""


def format_sbatch(job: ClusterJob, settings: SlurmSettings) -> str:
    """Return the script.

    Raises:
        InvalidOption: The value of a directive is not valid.
    """
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{key}{f'={value}' if value else ''}" for key, value in _list_directives(job, settings)),
    ]
    needed = [f': "${{{name}:?set {name} before sbatch}}"' for name in job.environment]
    setup = ["# Environment of the job.", *settings.setup, *needed, ""] if settings.setup or needed else []
    values = {
        "SETUP": "".join(f"{line}\n" for line in setup),
        "COMMAND": shlex.join(job.command),
        "MAX_RESTARTS": str(settings.max_restarts),
    }
    # In one pass: a word of the command may contain such a mark.
    return "\n".join(lines) + "\n" + re.sub("@([A-Z_]+)@", lambda mark: values[mark[1]], _BODY)


def _list_directives(job: ClusterJob, settings: SlurmSettings) -> list[tuple[str, str]]:
    found = [
        ("job-name", job.name),
        ("nodes", str(job.nodes)),
        ("ntasks-per-node", "1"),
        ("cpus-per-task", str(job.cpus)),
        *([("gpus-per-node", str(job.gpus))] if job.gpus else []),
        *([("mem", job.memory)] if job.memory else []),
        *([("time", job.time)] if job.time else []),
        *([("partition", settings.partition)] if settings.partition else []),
        *([("account", settings.account)] if settings.account else []),
        ("output", f"{settings.log_folder}/%x-%j.log"),
        ("open-mode", "append"),
        ("requeue", ""),
        ("signal", f"B:USR1@{_WARNING_S}"),
    ]
    if job.time and parse_time_limit_s(job.time) <= _WARNING_S:
        raise InvalidOption(
            f"the time limit must be longer than {_WARNING_S} seconds",
            where="--time",
            hint="the run needs time to save its state",
        )
    known = {key for key, _ in found} | _RESERVED
    for key, value in settings.directives.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", key) or key in known:
            hint = (
                "the script sets it itself; use the option of `assay launch`"
                if key in known
                else "for example qos=high"
            )
            raise InvalidOption(f"the directive `{key}` cannot be set", where="--sbatch", hint=hint)
        found.append((key, value))
    for key, value in found:
        if value and not _VALUE.fullmatch(value):
            raise InvalidOption(
                f"`{value}` is not a valid value of the SLURM option --{key}", where=f"--{key}"
            )
    return found


_BODY = """\
# Written by `assay launch slurm`. The run continues where it stopped when the job is queued again or submitted again.
set -euo pipefail

@SETUP@port=${RAY_PORT:-6379}
export RAY_USAGE_STATS_ENABLED=0
# A secret for this job: without one, anyone who can reach Ray can run code on its machines.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --ip-address | awk '{print $1}')
started=()

# Stop the processes that this script started.
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
}
trap finish EXIT

# SLURM sends USR1 before the time limit; scancel sends TERM.
run=
stop() {
    run=${run:-${!:-}} # a signal can arrive between the start of the run and the next line
    [ -n "$run" ] || return 0
    kill -TERM "$run" 2>/dev/null || true
    wait "$run" || true
}
cancel() {
    stop
    echo "cancelled: all responses are saved; submit the job again to continue"
    exit 143
}
queue_again() {
    stop
    if [ "${SLURM_RESTART_COUNT:-0}" -lt @MAX_RESTARTS@ ]; then
        echo "time limit: all responses are saved; queueing the job again"
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "time limit: all responses are saved; submit the job again to continue"
    fi
    exit 143
}
trap cancel TERM
trap queue_again USR1

common=(--block --disable-usage-stats --num-cpus="${SLURM_CPUS_PER_TASK:-1}")
srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" --overlap \\
    ray start --head --node-ip-address="$head" --port="$port" --include-dashboard=false "${common[@]}" &
started+=($!)
# Wait for the head, or stop if it exits.
until (echo >"/dev/tcp/$head/$port") 2>/dev/null; do
    kill -0 "${started[0]}"
    sleep 1
done
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --nodelist="$node" --overlap ray start --address="$head:$port" "${common[@]}" &
    started+=($!)
done

# Run in the background, so that this script receives signals.
@COMMAND@ --ray "$head:$port" &
run=$!
code=0
wait "$run" || code=$?
exit "$code"
"""
