"""Environments of the harnesses Assay is measured against, made once and kept out of the repository.

`ASSAY_PEER_LM_EVAL` may name the Python of an environment that already has lm_eval.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / ".peers"
PINS = {"lm_eval": "lm_eval==0.4.13"}


def peer_python(name: str) -> Path:
    """The Python of an environment with the peer installed (never with CUDA: its base install has no torch)."""
    given = os.environ.get(f"ASSAY_PEER_{name.upper()}")
    if given:
        return Path(given)
    python = FOLDER / name / "bin" / "python"
    if not python.exists():
        print(f"making an environment with {PINS[name]} …", file=sys.stderr)
        venv.create(FOLDER / name, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PINS[name]], check=True)
    return python


def measure(
    python: Path | str, script: str, *arguments: str, cwd: Path, **environment: str
) -> dict[str, Any]:
    """Run a script that prints one JSON line last; add its CPU seconds and peak memory, children included."""
    wrapped = (
        "import json, resource, sys\n"
        f"sys.argv = ['measured', *{list(arguments)!r}]\n"
        f"exec(compile({script!r}, 'measured', 'exec'), {{'__name__': '__main__'}})\n"
        "own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps({'total_cpu_s': own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,"
        " 'peak_mb': own.ru_maxrss / 1024}))\n"
    )
    finished = subprocess.run(
        [str(python), "-c", wrapped],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if finished.returncode != 0:
        raise SystemExit(f"the measured script failed:\n{finished.stderr[-3000:]}")
    first, second = finished.stdout.strip().splitlines()[-2:]
    return {**json.loads(first), **json.loads(second)}
