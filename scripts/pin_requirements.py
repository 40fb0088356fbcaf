"""Write the versions of the packages that are installed in the environments of `scripts/check` as constraints for pip.

    PIP_CONSTRAINT= .ci/run           # in a fresh clone: the tests with the newest versions of all packages
    python3 scripts/pin_requirements.py

`scripts/check` and `scripts/try` install these versions, so a release of another project cannot change their result.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by scripts/pin_requirements.py: the versions that scripts/check installs. Do not edit.\n"


def read_versions(python: Path) -> dict[str, str]:
    """The installed packages of an environment, without this project and its plugins."""
    command = [
        str(python),
        "-m",
        "pip",
        "list",
        "--format",
        "freeze",
        "--exclude-editable",
        "--exclude",
        "pip",
    ]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    versions = (line.split("==") for line in lines)
    return {name.lower().replace("_", "-"): version.split("+")[0] for name, version in versions}


def merge_versions(environments: dict[str, dict[str, str]]) -> list[str]:
    """One line for each package and version; with a marker where the versions of Python differ."""
    pythons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for python, versions in environments.items():
        for name, version in versions.items():
            pythons[name][version].append(python)
    lines = []
    for name, found in sorted(pythons.items()):
        for version, names in sorted(found.items()):
            marker = (
                "; " + " or ".join(f'python_version == "{one}"' for one in names) if len(found) > 1 else ""
            )
            lines.append(f"{name}=={version}{marker}\n")
    return lines


def main() -> None:
    """Write `constraints.txt`, `constraints-services.txt` and `constraints-interchange.txt` beside this script."""
    folders = {"3.11": ".venv", "3.12": ".venv-3.12", "3.13": ".venv-3.13"}
    environments = {python: read_versions(ROOT / folder / "bin/python") for python, folder in folders.items()}
    services = {"3.11": read_versions(ROOT / ".venv/services/bin/python")}
    written = {"constraints.txt": environments, "constraints-services.txt": services}
    interchange = ROOT / ".venv/interchange/bin/python"
    if interchange.exists():  # created with ASSAY_TEST_INTERCHANGE=1
        written["constraints-interchange.txt"] = {"3.12": read_versions(interchange)}
    for name, found in written.items():
        (ROOT / "scripts" / name).write_text(HEADER + "".join(merge_versions(found)))


if __name__ == "__main__":
    main()
