"""Leftovers of killed processes are deleted; everything else stays."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from assay.core.temporary_folders import sweep_temporary_folders


def test_only_old_folders_of_assay_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ["assay-score-abc_1", "assay-program-x", "assay-mine", "assay-score-young", "other"]
    for name in names:
        (tmp_path / name / "inside").mkdir(parents=True)
    before = time.time() - 2 * 24 * 3600
    for name in names:
        if name != "assay-score-young":
            os.utime(tmp_path / name, (before, before))
    assert sweep_temporary_folders() == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["assay-mine", "assay-score-young", "other"]
