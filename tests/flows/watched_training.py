"""Watch the training of a tiny Llama while training and watch are killed at random; compare with an undisturbed evaluation.

    python -m tests.flows.watched_training [--steps 300] [--save_every 25] [--kills 8] [--seed 0] [--folder DIR]

Needs torch and transformers; takes about ten minutes. Training (`examples/watching/train.py`) and watch are killed with `kill -9` at
random times and started again. At the end every checkpoint must have exactly one complete run, and its scores and answers must
equal those of a run that nothing disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from assay.store.runs.lookup import find_run_folders
from assay.store.runs.run import Run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "watching"


@dataclass(slots=True)
class Mortal:
    """A command that is killed and started again."""

    name: str
    command: list[str]
    folder: Path
    kills: int = 0
    process: subprocess.Popen[bytes] | None = None
    codes: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start the command; its output goes to a log file."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "ASSAY_HOME": str(self.folder / "home"),
            "OMP_NUM_THREADS": "1",
        }
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=environment, stdout=log, stderr=log
            )

    def kill(self) -> bool:
        """Kill the command with `kill -9`; return whether it was running."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1
        return True

    @property
    def code(self) -> int | None:
        """The exit code; None while it is running."""
        return None if self.process is None else self.process.poll()


def read_results(folder: Path) -> dict[str, list[tuple[float, list[float]]]]:
    """Return, for each checkpoint, the score and the document scores of every finished run."""
    found: dict[str, list[tuple[float, list[float]]]] = {}
    for path in find_run_folders([folder]):
        run = Run(path)
        try:
            if run.finished and run.complete:
                name = Path(run.facts["spec"]["model_args"]["pretrained"]).name
                verdicts = [float(row["acc"]) for row in run.samples("sums")]
                found.setdefault(name, []).append((float(run.estimates[0].value), verdicts))
        finally:
            run.close()
    return found


def main() -> None:
    """Train and watch, kill both, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save_every", type=int, default=25)
    parser.add_argument("--kills", type=int, default=8, help="Kills of each of both.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="assay-watched-"))
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.seed)
    saving = ["--steps", str(options.steps), "--save_every", str(options.save_every), "--pause", "0.5"]
    training = Mortal("training", [sys.executable, str(EXAMPLE / "train.py"), "out", *saving], folder)
    watch = [
        sys.executable, "-m", "assay", "watch", "out", "--tasks", str(EXAMPLE / "sums.yaml"), "--no_cache", "--poll", "0.5",
        "--settle", "2",
    ]  # fmt: skip
    watching = Mortal(
        "watch", [*watch, "-o", "watched", "--until", str(options.steps), "--order", "oldest"], folder
    )
    (folder / "out").mkdir(exist_ok=True)
    both = (training, watching)
    for one in both:
        one.start()
    while watching.code is None:
        time.sleep(draw.uniform(2, 40))
        victim = draw.choice(both)
        if victim.kills < options.kills and victim.kill():
            print(f"killed {victim.name} ({victim.kills})", flush=True)
        for one in both:
            if one.code not in (None, 0):
                one.start()
    assert (training.code, watching.code) == (0, 0), (training.code, watching.code, folder)
    reference = Mortal("reference", [*watch, "-o", "undisturbed", "--once", "--json"], folder)
    reference.start()
    assert reference.process is not None and reference.process.wait() == 0, folder
    names = {
        f"checkpoint-{step}" for step in range(options.save_every, options.steps + 1, options.save_every)
    }
    found, expected = read_results(folder / "watched"), read_results(folder / "undisturbed")
    assert set(found) == set(expected) == names, (set(found), set(expected))
    assert all(len(runs) == 1 for runs in found.values()), {name: len(runs) for name, runs in found.items()}
    assert found == expected
    curve = {name: runs[0][0] for name, runs in sorted(found.items(), key=lambda item: int(item[0][11:]))}
    summary = {"kills": {one.name: one.kills for one in both}, "curve": curve, "folder": str(folder)}
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
