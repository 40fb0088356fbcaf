"""The script of a SLURM job: its directives, and what it does with stand-ins for SLURM, Ray and Assay."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.engine.cluster_jobs.job import ClusterJob
from assay.engine.cluster_jobs.slurm import SlurmSettings, format_sbatch

KNOWN_DIRECTIVES = frozenset(
    "account chdir constraint cpus-per-task exclusive gpus-per-node gres job-name mail-type mem nodes ntasks-per-node"
    " open-mode output partition qos requeue signal time".split()
)
"""Options of sbatch that a job may use."""

WORDS = (
    "assay",
    "run",
    "--tasks",
    "my tasks/a.yaml",
    "--system_instruction",
    'You\'re "kind" to $HOME `id` \\ !\n\n\n\n$(id) @MAX_RESTARTS@ @SETUP@',
)
JOB = ClusterJob(
    name="assay-sums",
    command=WORDS,
    nodes=2,
    gpus=4,
    cpus=16,
    memory="64G",
    time="4:00:00",
    environment=("MY_KEY",),
)
SETTINGS = SlurmSettings(
    log_folder="jobs/logs",
    partition="gpu",
    account="me",
    directives={"qos": "high"},
    setup=("export A='b c'",),
)


def parse_directives(script: str) -> dict[str, str]:
    """Parse the #SBATCH lines as sbatch does: only those before the first command."""
    found: dict[str, str] = {}
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in lines[1:]:
        if line.startswith("#SBATCH"):
            match = re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line)
            assert match, line
            assert match[1] not in found
            found[match[1]] = match[2] or ""
        elif line and not line.startswith("#"):
            break
    assert script.count("#SBATCH") == len(found), "no directive after the first command"
    return found


def test_the_directives_are_those_of_the_job() -> None:
    found = parse_directives(format_sbatch(JOB, SETTINGS))
    assert found.keys() <= KNOWN_DIRECTIVES
    assert found == {
        "job-name": "assay-sums",
        "nodes": "2",
        "ntasks-per-node": "1",
        "cpus-per-task": "16",
        "gpus-per-node": "4",
        "mem": "64G",
        "time": "4:00:00",
        "partition": "gpu",
        "account": "me",
        "output": "jobs/logs/%x-%j.log",
        "open-mode": "append",
        "requeue": "",
        "signal": "B:USR1@120",
        "qos": "high",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partition": "gpu\n#SBATCH --uid=0"}, "not a valid value of the SLURM option --partition"),
        ({"account": "a b"}, "not a valid value of the SLURM option --account"),
        ({"directives": {"nodes": "9"}}, "the directive `nodes` cannot be set"),
        ({"directives": {"signal": "x"}}, "the directive `signal` cannot be set"),
        ({"directives": {"Bad key": "x"}}, "the directive `Bad key` cannot be set"),
    ],
)
def test_values_that_break_the_script_are_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        format_sbatch(JOB, SlurmSettings(log_folder="logs", **change))


def test_a_time_limit_shorter_than_the_warning_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="longer than 120 seconds"):
        format_sbatch(ClusterJob(name="x", command=WORDS, time="2"), SETTINGS)


def test_the_shell_accepts_the_script(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(format_sbatch(JOB, SETTINGS))
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).stderr == b""
    shellcheck = shutil.which("shellcheck")
    if shellcheck is not None:
        done = subprocess.run([shellcheck, "--severity=warning", str(script)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


STAND_INS = {
    "srun": 'echo "srun $*" >>"$LOG"\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"',
    "scontrol": 'echo "scontrol $*" >>"$LOG"\nif [ "$1" = show ]; then printf "n1\\nn2\\n"; fi',
    "hostname": "echo 127.0.0.1",
    "ray": 'echo "ray $*" >>"$LOG"\nexec "$PYTHON" "$RAY_STAND_IN" "$@"',
    "sleep": "exec /bin/sleep 0.02",
    "assay": (
        "trap 'kill $!; echo stopped >>\"$LOG\"; exit 143' TERM\n"
        # in one write, which the builtin `printf` of bash does not do: `ray` writes at the same time
        'env printf "assay%s\\n" "$(printf " [%s]" "$@")" >>"$LOG"\n'
        'until grep -q -- "${AFTER:-assay}" "$LOG"; do /bin/sleep 0.01; done\n'
        'if [ -n "${WAITS:-}" ]; then /bin/sleep 30 & wait $!; fi\nexit "${CODE:-0}"'
    ),
}
RAY = """\
import socket, sys, time
if "--head" in sys.argv:
    listening = socket.create_server(("127.0.0.1", int(next(w for w in sys.argv if w.startswith("--port="))[7:])))
time.sleep(30)
"""


class Stage:
    """A folder with stand-ins for the programs of a cluster, on the path of the script."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.script = folder / "job.sbatch"
        self.script.write_text(format_sbatch(JOB, SETTINGS))
        programs = folder / "bin"
        programs.mkdir()
        for name, body in STAND_INS.items():
            (programs / name).write_text(f"#!/bin/bash\n{body}\n")
            (programs / name).chmod(0o755)
        (folder / "ray.py").write_text(RAY)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LOG": str(self.log),
            "PYTHON": sys.executable,
            "RAY_STAND_IN": str(folder / "ray.py"),
            "RAY_PORT": str(port),
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_JOB_ID": "7",
            "HOME": "/home/me",
            "MY_KEY": "x",
        }

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", str(self.script)],
            env={**self.environment, **more},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def read_log(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_script_starts_ray_on_every_node_and_passes_the_words_unchanged(stage: Stage) -> None:
    assert stage.start(CODE="5", AFTER="--nodelist=n2 --overlap").wait(20) == 5, "the exit code of the run"
    log = stage.read_log()
    port = stage.environment["RAY_PORT"]
    assert any(
        line.startswith(f"ray start --head --node-ip-address=127.0.0.1 --port={port} ") for line in log
    )
    words = " ".join(f"[{word}]" for word in WORDS[1:])
    assert f"assay {words} [--ray] [127.0.0.1:{port}]\n" in stage.log.read_text()
    assert any("--nodelist=n2 --overlap ray start --address=127.0.0.1" in line for line in log)
    assert not any("requeue" in line for line in log)


@pytest.mark.parametrize(
    ("sent", "restarts", "expected"),
    [
        pytest.param(signal.SIGUSR1, "3", True, id="time limit"),
        pytest.param(signal.SIGUSR1, "20", False, id="time limit after the last restart"),
        pytest.param(signal.SIGTERM, "3", False, id="scancel"),
    ],
)
def test_only_the_time_limit_queues_the_job_again(
    stage: Stage, sent: signal.Signals, restarts: str, expected: bool
) -> None:
    job = stage.start(WAITS="1", SLURM_RESTART_COUNT=restarts)
    deadline = time.monotonic() + 20
    while not any(line.startswith("assay ") for line in stage.read_log()) and time.monotonic() < deadline:
        time.sleep(0.02)
    job.send_signal(sent)
    assert job.wait(20) == 143
    log = stage.read_log()
    assert "stopped" in log and ("scontrol requeue 7" in log) == expected


def test_a_missing_variable_stops_the_job_before_ray_starts(stage: Stage) -> None:
    del stage.environment["MY_KEY"]
    assert stage.start().wait(20) != 0
    assert stage.read_log() == []
