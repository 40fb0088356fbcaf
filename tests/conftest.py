"""Common settings and fixtures. `tests/isolation.py` keeps the user's files and settings away from every test."""

from __future__ import annotations

import doctest
import os
import signal
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background job; some tests send Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("assay", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=500, deadline=None, database=None)  # see tests/TIME.md
settings.load_profile("assay")

REQUIRED_PACKAGES = {
    "torch": ("torch", "transformers"),
    "ray": ("ray",),
    "browser": ("playwright",),
    "vllm": ("vllm",),
}
"""The packages without which tests with this marker are skipped."""

SERVICE_PACKAGES = ("anthropic", "litellm", "mlflow", "openai", "trackio", "wandb")
"""The packages of tests with the marker `services`."""

INTERCHANGE_PACKAGES = ("every_eval_ever", "huggingface_hub", "inspect_ai")
"""The packages of tests with the marker `interchange`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose packages are not installed.

    Leave out docstrings whose examples are all `+SKIP`, and tests that tests/test_environments.py runs in another process.
    """
    missing = {
        marker: ", ".join(name for name in packages if find_spec(name) is None)
        for marker, packages in REQUIRED_PACKAGES.items()
    }
    missing = {marker: names for marker, names in missing.items() if names}
    for item in items:
        for marker, names in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"not installed: {names}"))
    elsewhere = {
        "services": not has_service_packages(),
        "interchange": not has_interchange_packages(),
        "permissions": ignores_permissions(),
    }
    items[:] = [
        item
        for item in items
        if not _is_skipped_doctest(item)
        and not any(applies and item.get_closest_marker(marker) for marker, applies in elsewhere.items())
    ]


def has_service_packages() -> bool:
    """Return whether this interpreter can run the tests with the marker `services`."""
    return all(find_spec(name) is not None for name in SERVICE_PACKAGES)


def has_interchange_packages() -> bool:
    """Return whether this interpreter can run the tests with the marker `interchange`."""
    return all(find_spec(name) is not None for name in INTERCHANGE_PACKAGES)


def ignores_permissions() -> bool:
    """Return whether this process may write to read-only folders, as root may."""
    with tempfile.TemporaryDirectory() as folder:
        read_only = Path(folder) / "read-only"
        read_only.mkdir(mode=0o500)
        return os.access(read_only, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _is_skipped_doctest(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.DoctestItem) or item.dtest is None:
        return False
    return all(example.options.get(doctest.SKIP) for example in item.dtest.examples)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return `tmp_path`, which becomes the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
