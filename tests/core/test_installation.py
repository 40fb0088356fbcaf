"""The install command in hints fits the installation at hand."""

from __future__ import annotations

import importlib.metadata
import json
import tomllib
import urllib.request  # noqa: F401 - the code imports it after a test has emptied sys.path
from pathlib import Path
from typing import Any

import pytest

from assay.core.installation import (
    DISTRIBUTION,
    assay_version,
    find_distribution_name,
    format_install_command,
    merge_install_commands,
)

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the metadata of an installation, and let importlib.metadata find nothing else."""

    def write(direct_url: object = None) -> None:
        folder = tmp_path / "site-packages" / f"{DISTRIBUTION.replace('-', '_')}-9.8.7.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 9.8.7\n")
        if direct_url is not None:
            (folder / "direct_url.json").write_text(json.dumps(direct_url))
        monkeypatch.setattr("sys.path", [str(folder.parent)])

    return write


def test_a_wheel_from_a_registry_names_the_distribution(install: Any) -> None:
    install()
    assert format_install_command("datasets") == "pip install 'assay-harness[datasets]'"
    assert format_install_command("hf", "media") == "pip install 'assay-harness[hf,media]'"
    assert format_install_command() == "pip install assay-harness"
    assert assay_version() == "9.8.7"


def test_a_wheel_from_a_file_names_the_distribution(install: Any) -> None:
    install({"url": "file:///tmp/assay_harness-9.8.7-py3-none-any.whl", "archive_info": {}})
    assert format_install_command("datasets") == "pip install 'assay-harness[datasets]'"


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("file:///srv/assay", "pip install -e '/srv/assay[datasets]'"),
        ("file:///srv/my%20clone", "pip install -e '/srv/my clone[datasets]'"),
    ],
)
def test_an_editable_clone_names_its_folder(install: Any, url: str, command: str) -> None:
    install({"url": url, "dir_info": {"editable": True}})
    assert format_install_command("datasets") == command


def test_an_install_from_a_folder_that_is_not_editable_names_the_folder(install: Any) -> None:
    install({"url": "file:///srv/assay", "dir_info": {}})
    assert format_install_command("datasets") == "pip install '/srv/assay[datasets]'"


def test_an_import_from_the_source_tree_names_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    assert format_install_command("datasets") == f"pip install -e '{PROJECT}[datasets]'"
    assert assay_version() == "unknown"


def test_the_distribution_is_the_one_pyproject_names() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert assay_version() == importlib.metadata.version(DISTRIBUTION)
    for extra, requirements in project["optional-dependencies"].items():
        assert not [name for name in requirements if name.startswith("assay[")], extra


def test_install_commands_are_merged() -> None:
    commands = [
        "pip install zss",
        "pip install -e '/srv/my assay[metrics]'",
        "pip install -e '/srv/my assay[media,hf]'",
        "pip install zss jieba",
        "pip install a && pip install --no-deps b",
    ]
    assert merge_install_commands(commands) == "pip install -e '/srv/my assay[hf,media,metrics]' jieba zss"
    assert merge_install_commands(["see the manual"]) == ""


def test_import_names_have_the_name_of_their_distribution() -> None:
    assert find_distribution_name("sklearn.metrics") == "scikit-learn"
    assert find_distribution_name("zss") == "zss"
    assert find_distribution_name("iso639") == "iso639-lang"
    assert find_distribution_name("antlr4") == "antlr4-python3-runtime==4.11.0"
