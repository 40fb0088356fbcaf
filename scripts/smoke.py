"""Install the built wheel in an empty environment and run the quickstart there: smoke.py DIST [PYTHON]

Checks the command, the embedded model and its tasks, a run that is repeated, an export, the hint that names a missing extra,
that the base installation contains no heavy package, and its size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HEAVY_PACKAGES = {"torch", "transformers", "datasets", "pandas", "scipy", "ray", "plotly", "vllm"}
MAX_MEGABYTES = 110
"""The unpacked size, without bytecode, of Assay and everything the base installation includes; NumPy and Pillow are most of it."""

PRINT_HINT = (
    "from assay.core.installation import format_install_command; print(format_install_command('datasets'))"
)


def main(dist: str, python: str = sys.executable) -> None:
    """Run all checks and exit with an error if one fails."""
    wheels = sorted(Path(dist).resolve().glob("assay_harness-*.whl"))
    if not wheels:
        raise SystemExit(f"error: no wheel in {dist}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _call([python, "-m", "venv", "--without-pip", folder / "env"], folder)
        installed = folder / "env" / "bin" / "python"
        size_before = _measure_size(folder / "env")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", installed]
        _call([*pip, "install", "-q", "--no-compile", *wheels], folder)
        megabytes = (_measure_size(folder / "env") - size_before) / 1e6
        packages = json.loads(_call([*pip, "list", "--format", "json"], folder))
        names = {package["name"].lower() for package in packages}
        if heavy := names & HEAVY_PACKAGES:
            raise SystemExit(f"error: the base installation includes {', '.join(sorted(heavy))}")
        if megabytes > MAX_MEGABYTES:
            raise SystemExit(
                f"error: the base installation takes {megabytes:.0f} MB, more than {MAX_MEGABYTES}"
            )
        if (
            hint := _call([installed, "-c", PRINT_HINT], folder).strip()
        ) != "pip install 'assay-harness[datasets]'":
            raise SystemExit(f"error: the hint for a missing extra is `{hint}`")
        _run_quickstart(folder / "env" / "bin" / "assay", folder)
        version = _call([installed, "--version"], folder).strip()
        print(
            f"{version}: {len(names)} packages, {megabytes:.0f} MB; a run, its repetition and an export worked"
        )


def _run_quickstart(assay: Path, folder: Path) -> None:
    _call([assay, "--version"], folder)
    run = [assay, "run", "--tasks", "quickstart", "--limit", "4", "--json"]
    results = json.loads(_call(run, folder))["results"]
    if results["quickstart_addition"]["exact_match,get-sum"] < 1:
        raise SystemExit("error: the embedded model gives wrong answers")
    if json.loads(_call(run, folder))["results"] != results:
        raise SystemExit("error: a repeated run gives different results")
    _call([assay, "export", "latest", "--format", "jsonl", "-o", "out"], folder)


def _call(command: list[object], folder: Path) -> str:
    """Run a command in an empty environment with pip's settings, and return its output."""
    pip_settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    process = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "ASSAY_HOME": str(folder / "home"),
            **pip_settings,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if process.returncode:
        raise SystemExit(f"error: {' '.join(map(str, command))}\n{process.stdout}{process.stderr}")
    return process.stdout


def _measure_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main(*sys.argv[1:])
