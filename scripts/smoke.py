"""Install built wheels in an empty environment and see that they work: smoke.py DIST

What a user's first minute needs: the command, the embedded model, its tasks, a run that is continued, an export; nothing
heavy among the packages; a size that does not grow unnoticed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HEAVY = {"torch", "transformers", "datasets", "pandas", "scipy", "ray", "plotly", "vllm"}
MOST_MB = 130
"""Assay and everything its base install brings, unpacked: NumPy and Pillow are most of it."""


def main(dist: str) -> None:
    """Raises where something does not work."""
    wheels = sorted(Path(dist).resolve().glob("*.whl"))
    own = [wheel for wheel in wheels if wheel.name.startswith("assay_harness-")]
    if not own:
        raise SystemExit(f"error: no wheel in {dist}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        before = _size(folder / "env")
        _call([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *own], folder)
        megabytes = (_size(folder / "env") - before) / 1e6
        listed = json.loads(
            _call([python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"], folder)
        )
        names = {package["name"].lower() for package in listed}
        if heavy := names & HEAVY:
            raise SystemExit(f"error: the base install brings {', '.join(sorted(heavy))}")
        if megabytes > MOST_MB:
            raise SystemExit(f"error: the base install takes {megabytes:.0f} MB, more than {MOST_MB}")
        assay = folder / "env" / "bin" / "assay"
        _call([assay, "--version"], folder)
        run = ["run", "--tasks", "quickstart", "--limit", "4", "--json"]
        results = json.loads(_call([assay, *run], folder))["results"]
        if results["quickstart_addition"]["exact_match,get-sum"] < 1:
            raise SystemExit("error: the embedded model cannot add")
        if json.loads(_call([assay, *run], folder))["results"] != results:
            raise SystemExit("error: a repeated run says something else")
        _call([assay, "export", "latest", "--format", "jsonl", "-o", "out"], folder)
        print(f"{len(names)} packages, {megabytes:.0f} MB; a run, its repetition and an export worked")


def _call(words: list[object], folder: Path) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "ASSAY_HOME": str(folder / "home"), **_pip()},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"error: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def _pip() -> dict[str, str]:
    """How pip is set up here, by its own variables."""
    import os

    return {key: value for key, value in os.environ.items() if key.startswith("PIP_")}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main(sys.argv[1])
