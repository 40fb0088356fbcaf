"""`python -m assay.testing.oracle` runs the replay of the clone, and says what to do without a clone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.core.errors import MissingPackage
from assay.testing.oracle import find_source_tree


def test_the_alias_runs_the_replay_from_any_folder(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "assay.testing.oracle", "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert completed.returncode == 0, completed.stderr
    assert "--task_root" in completed.stdout


def test_the_alias_names_the_command_where_there_is_no_clone(tmp_path: Path) -> None:
    with pytest.raises(MissingPackage, match=r"python -m tools\.oracle\.replay"):
        find_source_tree(tmp_path)
