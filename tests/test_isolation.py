"""No test reads the user's files, settings, keys or runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.isolation import is_user_setting, make_isolated_environment

PROJECT = Path(__file__).parents[1]
SAMPLE = """
    tests/cli/test_run.py::test_tasks_may_be_named_in_any_way
    tests/cli/test_runs.py::test_runs_are_listed_with_state_documents_and_score
    tests/cli/test_runs.py::test_resuming_a_finished_run_shows_it
    tests/flows/test_stop_when.py::test_a_gate_stops_as_soon_as_the_outcome_is_certain
    tests/models/test_credentials.py
    tests/models/hosted/test_anthropic.py::test_payload_and_reply
    tests/test_api.py::test_quickstart_tasks_run
    src/assay/core/secrets.py
""".split()
"""Tests that run commands, find runs, read the cache, look for keys, and examples in docstrings: a few of each."""

INVALID_SETTINGS = {
    "ASSAY_DATA": "/nowhere/data",
    "ASSAY_TASKS": "/nowhere/tasks",
    "OPENAI_API_KEY": "planted-key",
    "OPENAI_BASE_URL": "not a url",
    "ANTHROPIC_API_KEY": "planted-key",
    "GEMINI_API_KEY": "planted-key",
    "HF_HOME": "/nowhere/hf",
    "HF_ALLOW_CODE_EVAL": "1",
    "HF_TOKEN": "planted-token",
    "HF_DATASETS_CACHE": "/nowhere/datasets",
    "RAY_ADDRESS": "nowhere:1",
    "WANDB_MODE": "planted",
    "COLUMNS": "20",
    "FORCE_COLOR": "1",
    "PYTHON_KEYRING_BACKEND": "planted_keyring.Keyring",
}
KEYRING = """
from pathlib import Path
from keyring.backend import KeyringBackend

class Keyring(KeyringBackend):
    priority = 99

    def get_password(self, service, username):
        Path(__file__).with_name("keyring-was-read").touch()
        raise RuntimeError("a test reads the user's keyring")

    set_password = delete_password = get_password
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """An environment whose home, caches, settings, keyring and working folder are all invalid."""
    home, work = tmp_path / "home", tmp_path / "work"
    folders = make_isolated_environment(home)
    for path in (
        *(work / "assay-runs" / name / "journal.sqlite" for name in ("scripted-one", "embedded-quickstart")),
        *(Path(folders["ASSAY_HOME"]) / name for name in ("responses.sqlite", "tasks.sqlite", "config.yaml")),
        *(Path(folders[name], "assay", "responses.sqlite") for name in folders if name.startswith("XDG_")),
        Path(folders["XDG_CACHE_HOME"], "huggingface", "token"),
        home / ".netrc",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0 planted, invalid: [{")
    (tmp_path / "planted_keyring.py").write_text(KEYRING)
    return {**os.environ, **folders, **INVALID_SETTINGS, "PYTHONPATH": str(tmp_path), "PWD": str(work)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tests_pass_whatever_the_user_has(planted: dict[str, str]) -> None:
    tests = [f"{PROJECT}/{name}" for name in SAMPLE if (PROJECT / name.partition("::")[0]).exists()]
    assert len(tests) > 6
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            PROJECT / "pyproject.toml",
            *tests,
        ],
        cwd=planted["PWD"],
        env=planted,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-5000:] + process.stderr[-2000:]
    assert not Path(planted["PYTHONPATH"], "keyring-was-read").exists()


@pytest.mark.parametrize("name", [*INVALID_SETTINGS, "XDG_DATA_HOME", "MISTRAL_API_KEY", "AWS_PROFILE"])
def test_settings_of_the_user_are_removed(name: str) -> None:
    assert is_user_setting(name)


@pytest.mark.parametrize(
    "name", ["PATH", "LANG", "ASSAY_SHARED", "ASSAY_TEST_PYTHONS", "ASSAY_LM_EVAL_TASKS", "PIP_CERT"]
)
def test_settings_of_the_tests_are_kept(name: str) -> None:
    assert not is_user_setting(name)


def test_a_test_has_a_home_and_an_empty_working_folder(assay_home: Path) -> None:
    assert os.environ["ASSAY_HOME"] == str(assay_home) and not assay_home.exists()
    assert Path.home() == assay_home.parent
    assert list(Path.cwd().iterdir()) == []


def test_isolation_lasts_when_a_test_undoes_its_changes(
    monkeypatch: pytest.MonkeyPatch, assay_home: Path
) -> None:
    monkeypatch.setenv("ASSAY_HOME", "elsewhere")
    monkeypatch.undo()
    assert os.environ["ASSAY_HOME"] == str(assay_home)
