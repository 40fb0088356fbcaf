"""What every test gets: a home of its own, no network, and the same examples each time."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
os.environ.update(
    dict.fromkeys(OFFLINE, "1")
)  # read when the packages are imported, which may be before any fixture

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("assay", deadline=None, derandomize=True, database=None)
settings.load_profile("assay")

NEEDED = {"torch": ("torch", "transformers"), "ray": ("ray",), "browser": ("playwright",), "vllm": ("vllm",)}
"""The packages without which tests with this marker are skipped."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, packages in NEEDED.items():
            missing = [name for name in packages if find_spec(name) is None]
            if missing and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))


@pytest.fixture(autouse=True)
def assay_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared cache of its own for each test; the user's stays untouched."""
    home = tmp_path_factory.mktemp("assay-home")
    monkeypatch.setenv("ASSAY_HOME", str(home))
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    for name in OFFLINE:
        monkeypatch.setenv(name, "1")
    return home


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that `./assay-runs` is not made in the project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
