"""The part of `make soak` that attacks the sandboxes and the verdicts of programs.

python -m tests.sandboxes.soak_attacks            # the rows of benchmarks/SOAK.md
python -m tests.sandboxes.soak_attacks namespaces # one sandbox, as JSON, with the current user
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.sandboxes.attacks import ATTACKS, run_attacks

from assay.core.records.programs import SandboxError
from assay.sandboxes import make_sandbox

__all__ = ["ATTACK_COLUMNS", "ATTACK_TEXT", "attack_sandboxes"]

ATTACK_COLUMNS = "sandbox | user | attacks | survived | programs stopped | time"
ATTACK_TEXT = f"""\
Each of {len(ATTACKS)} programs tries to leave its sandbox or to exceed a limit (`tests/sandboxes/attacks.py`); others try to forge the verdict on
themselves (`tests/scoring/hf_evaluate/verdict_cheats.py`). *Survived*: the attack failed."""

_ROOT = Path(__file__).parents[2]
_ORDINARY_USER = 65534


def attack_one(name: str) -> dict[str, Any]:
    """Attack one sandbox with all attacks; the result has `skipped` if the sandbox does not work here."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    arguments = {"python": python} if name == "limits" and os.geteuid() == 0 and python else {}
    sandbox = make_sandbox(name, arguments)
    try:
        tool = asyncio.run(sandbox.inspect()).tool
        escaped, endings = asyncio.run(run_attacks(sandbox))
    except SandboxError as reason:
        return {"skipped": reason.what}
    return {"tool": tool, "escaped": escaped, "endings": dict(endings)}


def attack_as_ordinary_user(name: str) -> dict[str, Any]:
    """The same as another user than root."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        return {"skipped": "no interpreter that every user can read"}
    path = os.pathsep.join((str(_ROOT), str(_ROOT / "src")))
    environment = {"PATH": os.defpath, "HOME": "/tmp", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-m", "tests.sandboxes.soak_attacks", name],
        capture_output=True, text=True, check=False, cwd="/", env=environment, user=_ORDINARY_USER, group=_ORDINARY_USER,
    )  # fmt: skip
    if done.returncode:
        return {"skipped": (done.stderr.strip().splitlines() or ["it failed"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def attack_verdicts() -> tuple[int, list[str]]:
    """Run the programs that try to forge a verdict; return how many there are, and those that passed."""
    from tests.scoring.hf_evaluate.verdict_cheats import CHEATS

    from assay.sandboxes.program_runner import allow_programs
    from assay.scoring.hf_evaluate.code_eval import run_candidates

    with allow_programs():
        verdicts = run_candidates([*CHEATS.values()])
    return len(CHEATS), [name for name, verdict in zip(CHEATS, verdicts, strict=True) if verdict == "passed"]


def attack_sandboxes(failed: list[str]) -> Iterator[str]:
    """Yield the rows of the report. Attacks that succeeded are added to `failed`."""
    users = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
    for name in ("bubblewrap", "namespaces", "limits"):
        for user in users:
            start = time.monotonic()
            own = user == "root" or os.geteuid() != 0
            found = attack_one(name) if own else attack_as_ordinary_user(name)
            if "skipped" in found:
                yield f"| {name} | {user} | not run: {found['skipped']} | | | |"
                continue
            failed += [f"{name}, {user}: {attack}" for attack in found["escaped"]]
            stops = {
                reason: count for reason, count in sorted(found["endings"].items()) if reason != "exited"
            }
            stopped = ", ".join(f"{count} {reason}" for reason, count in stops.items())
            total = sum(found["endings"].values())
            yield f"| {name} ({found['tool']}) | {user} | {total} | {total - len(found['escaped'])} | {stopped} | {time.monotonic() - start:.0f} s |"
    start = time.monotonic()
    count, passed = attack_verdicts()
    failed += [f"verdict: {cheat}" for cheat in passed]
    yield f"| verdicts of programs | | {count} | {count - len(passed)} | | {time.monotonic() - start:.0f} s |"


def main() -> None:
    """Print the section, or the result of one sandbox."""
    if len(sys.argv) > 1:
        print(json.dumps(attack_one(sys.argv[1])))
        return
    failed: list[str] = []
    for row in attack_sandboxes(failed):
        print(row, flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
