"""Python environments of the peers that benchmarks compare with. `scripts/bench` creates them in `benchmarks/.peers/`.

To use existing environments, set `ASSAY_PEER_LM_EVAL`, `ASSAY_PEER_LMMS_EVAL`, `ASSAY_PEER_INSPECT_AI`, `ASSAY_PEER_LIGHTEVAL`
or `ASSAY_PEER_PACKAGES` to their Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / ".peers"
INSPECT_SCRIPT = """
import importlib.util, importlib.metadata, json, sys
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return None
def folder(name):
    found = importlib.util.find_spec(name)
    return found and (found.submodule_search_locations or [None])[0]
print(json.dumps({"versions": {name: version(name) for name in sys.argv[2:]}, "folder": folder(sys.argv[1])}))
"""


def find_peer(name: str) -> Path | None:
    """Return the Python of the peer's environment, or None."""
    given = os.environ.get(f"ASSAY_PEER_{name.upper()}")
    python = Path(given) if given else FOLDER / name / "bin" / "python"
    return python if python.exists() else None


def require_peer(name: str) -> Path:
    """Return the Python of the peer's environment, or exit with an error."""
    found = find_peer(name)
    if found is None:
        raise SystemExit(
            f"no environment with {name}\n\nhint: `scripts/bench` creates it; or set ASSAY_PEER_{name.upper()}=…"
        )
    return found


@cache
def inspect_environment(python: Path | str, package: str, *packages: str) -> dict[str, Any]:
    """Return the folder of a package and the versions of packages (None if missing), without importing them."""
    command = [str(python), "-c", INSPECT_SCRIPT, package, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return dict(json.loads(done.stdout))


def find_task_folder(name: str = "lm_eval") -> Path:
    """Return the folder of an installed peer's task files."""
    return Path(inspect_environment(require_peer(name), name)["folder"]) / "tasks"


def provide_lighteval_file(python: Path) -> None:
    """Write an empty file in place of one that lighteval downloads when it lists its tasks, and reads in other commands only."""
    file = Path(inspect_environment(python, "lighteval")["folder"]) / "tasks" / "tasks" / "tinyBenchmarks.pkl"
    if not file.exists():
        file.touch()


def measure_script(
    python: Path | str, script: str, *arguments: str, cwd: Path, **environment: str
) -> dict[str, Any]:
    """Run a script that ends with one line of JSON; return it with CPU seconds (children included) and peak memory."""
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
        print(finished.stderr[-3000:], file=sys.stderr)
        raise SystemExit(f"benchmark script failed: {(finished.stderr.strip().splitlines() or ['?'])[-1]}")
    first, second = finished.stdout.strip().splitlines()[-2:]
    return {**json.loads(first), **json.loads(second)}
