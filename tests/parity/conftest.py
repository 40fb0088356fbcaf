"""Fixtures of the parity tests: recorded corpora and the task files they were recorded from."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def find_shared() -> Path | None:
    """The folder with the corpora: ASSAY_SHARED, else `shared` beside the project."""
    folder = Path(os.environ.get("ASSAY_SHARED") or PROJECT.parent / "shared")
    return folder if folder.is_dir() else None


def find_tasks(package: str) -> Path | None:
    """The task files of a harness, without importing it: ASSAY_LM_EVAL_TASKS, else those of the installed package."""
    named = os.environ.get(f"ASSAY_{package.upper()}_TASKS")
    if named:
        return Path(named) if Path(named).is_dir() else None
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        return None
    folder = Path(str(installed.locate_file(f"{package}/tasks")))
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def lm_eval_corpus() -> Path:
    """The recorded corpus of lm_eval."""
    shared = find_shared()
    if shared is None or not (shared / "oracle" / "lm_eval").is_dir():
        pytest.skip("no recorded corpus: set ASSAY_SHARED to the folder that holds oracle/lm_eval")
    return shared / "oracle" / "lm_eval"


@pytest.fixture(scope="session")
def lm_eval_tasks() -> Path:
    """The task files the corpus was recorded from."""
    tasks = find_tasks("lm_eval")
    if tasks is None:
        pytest.skip("no task files of lm_eval: install it, or set ASSAY_LM_EVAL_TASKS to an unpacked wheel")
    return tasks


@pytest.fixture(scope="session")
def lmms_eval_corpus() -> Path:
    """The recorded corpus of lmms_eval."""
    shared = find_shared()
    if shared is None or not (shared / "oracle" / "lmms_eval").is_dir():
        pytest.skip("no recorded corpus: set ASSAY_SHARED to the folder that holds oracle/lmms_eval")
    return shared / "oracle" / "lmms_eval"


@pytest.fixture(scope="session")
def lmms_eval_tasks() -> Path:
    """The task files the corpus was recorded from."""
    tasks = find_tasks("lmms_eval")
    if tasks is None:
        pytest.skip(
            "no task files of lmms_eval: install it, or set ASSAY_LMMS_EVAL_TASKS to an unpacked wheel"
        )
    return tasks
