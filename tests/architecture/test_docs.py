"""Check the documentation: links, sections, generated pages, flags, changelog."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from assay.cli.app import COMMANDS
from assay.core.options.run_spec import list_options

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "assay"
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
CONCEPTS = sorted((PROJECT / "docs" / "concepts").glob("*.md"))
PACKAGES = sorted(
    path.name
    for path in SOURCE.iterdir()
    if (path / "__init__.py").is_file() and path.name != "builtin_tasks"
)
HEADINGS = ["Purpose", "Terms", "Boundaries", "Interface"]
COMMAND_FLAGS = {
    flag.replace("-", "_").replace("__", "--", 1)
    for module, _ in COMMANDS.values()
    for command in (import_module(module).command,)
    for one in (command, *getattr(command, "commands", {}).values())
    for parameter in one.params
    for flag in parameter.opts
} | {"--help", "--version"}
"""Flags of commands that are not options of a run."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def format_path(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def list_anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    lines = FENCE.sub("", path.read_text("utf-8")).splitlines()
    titles = (line.lstrip("# ") for line in lines if line.startswith("#"))
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=format_path)
def test_page_has_no_conflict_markers(page: Path) -> None:
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=format_path)
def test_every_link_resolves(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{target} does not exist"
        assert not anchor or anchor in list_anchors(linked), f"{target} has no such heading"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_concept_page(package: str) -> None:
    page = PROJECT / "docs" / "concepts" / f"{package}.md"
    assert page.is_file()
    assert "*Not built yet.*" not in page.read_text("utf-8"), "describe the package"


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_a_concept_page_has_the_four_sections(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert lines[0].startswith(f"# {page.stem}: ")
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == HEADINGS
    assert page.stem in PACKAGES or "*Not built yet.*" in page.read_text("utf-8")


def test_every_page_can_be_reached_from_the_index() -> None:
    docs = PROJECT / "docs"
    index = (docs / "index.md").read_text("utf-8")
    linked = {(docs / target).resolve() for target in LINK.findall(index) if "://" not in target}
    assert {page.resolve() for page in docs.rglob("*.md")} - linked == {(docs / "index.md").resolve()}


def test_generated_pages_are_current() -> None:
    result = subprocess.run(
        [sys.executable, "scripts/generate_reference.py", "--check"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )
    assert result.returncode == 0, f"{result.stdout}{result.stderr}run scripts/format"


@pytest.mark.parametrize("page", PAGES, ids=format_path)
def test_every_flag_that_is_mentioned_exists(page: Path) -> None:
    """`--like_this`, alone in a sentence; whole commands are read by the parser in tests/docs."""
    known = {f"--{name}" for name, _, _ in list_options()} | COMMAND_FLAGS
    mentioned = re.findall(r"`(--\w[\w-]*)", page.read_text("utf-8"))
    assert {flag.replace("-", "_").replace("__", "--", 1) for flag in mentioned} <= known


def check_changelog(changelog: str, version: str) -> None:
    """Check the sections: newest release first; a version without a release section has unreleased entries."""
    sections = re.findall(r"^## \[(.+?)\](.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    names = [name for name, _ in sections]
    releases = [tuple(map(int, name.split("."))) for name in names if name != "Unreleased"]
    current = tuple(map(int, version.split(".")))
    assert "Unreleased" not in names[1:], "`[Unreleased]` must be the first section"
    assert releases == sorted(set(releases), reverse=True), "releases must be in descending order"
    if current in releases:
        assert current == releases[0], f"{version} is older than the newest release"
    else:
        assert not releases or current > releases[0], f"{version} is older than the newest release"
        assert names[:1] == ["Unreleased"], f"neither [{version}] nor [Unreleased] is in the changelog"
        assert re.search(r"^- ", sections[0][1], re.MULTILINE), "`[Unreleased]` has no entries"


def test_changelog_matches_the_version() -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    check_changelog((PROJECT / "CHANGELOG.md").read_text("utf-8"), version)


@pytest.mark.parametrize("page", PAGES, ids=format_path)
def test_a_wheel_that_is_named_has_the_current_version(page: Path) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert set(re.findall(r"assay_harness-([\d.]+)-py3", page.read_text("utf-8"))) <= {version}


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        ("## [0.1.0]\n- x\n", "neither"),
        ("## [Unreleased]\n\n## [0.1.0]\n- x\n", "no entries"),
        ("## [0.3.0]\n- x\n", "older"),
        ("## [0.2.0]\n- x\n\n## [Unreleased]\n- y\n", "first section"),
        ("## [Unreleased]\n- y\n\n## [0.1.0]\n- x\n\n## [0.1.5]\n- x\n", "descending"),
    ],
    ids=["no section", "empty section", "newer release", "order of sections", "order of releases"],
)
def test_changelog_check_detects(changelog: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_changelog(changelog, "0.2.0")


def test_ci_runs_the_command_of_the_readme() -> None:
    assert "\nscripts/check\n" in (PROJECT / "README.md").read_text("utf-8")
    script = (PROJECT / ".ci" / "run").read_text("utf-8")
    assert '"$root/scripts/check" ||' in script and '"$root/scripts/check" --fast ||' in script
