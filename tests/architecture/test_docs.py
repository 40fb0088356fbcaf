"""What the documentation says is there. What lists something is generated or tested."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from assay.cli.app import COMMANDS
from assay.core.messages import Prompt
from assay.core.ports import Model
from assay.core.requests import Generate, Settings
from assay.core.responses import Response
from assay.core.runspec import run_options

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "assay"
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
CONCEPTS = sorted((PROJECT / "docs" / "concepts").glob("*.md"))
PACKAGES = sorted(
    path.name
    for path in SOURCE.iterdir()
    if (path / "__init__.py").is_file() and path.name != "builtin_tasks"
)
HEADINGS = ["What it is for", "Its words", "What it does not know", "Its arrow"]
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


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of one language on a page."""
    text = (PROJECT / page).read_text("utf-8")
    return [code for kind, code in FENCE.findall(text) if kind == language]


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    lines = FENCE.sub("", path.read_text("utf-8")).splitlines()
    titles = (line.lstrip("# ") for line in lines if line.startswith("#"))
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(linked), f"{target} has no such heading"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_concept_page(package: str) -> None:
    page = PROJECT / "docs" / "concepts" / f"{package}.md"
    assert page.is_file()
    assert "*Not built yet.*" not in page.read_text("utf-8"), "the package is there: say what it is"


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_a_concept_page_answers_four_questions(page: Path) -> None:
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_flag_that_is_shown_exists(page: Path) -> None:
    known = {f"--{name}" for name, _, _ in run_options()} | COMMAND_FLAGS
    text = page.read_text("utf-8")
    commands = [
        line
        for line in text.splitlines()
        if re.search(
            r"\bassay (run|plan|ls|show|check|runs|resume|verify|score|export|cache|compare|explain|power|gate|calibrate|lint-benchmark|view)\b",
            line,
        )
    ]
    quoted = re.findall(r"`(--\w[\w-]*)", text)
    shown = {flag for line in commands for flag in re.findall(r"(?<!\S)--\w[\w-]*", line)} | {*quoted}
    assert {flag.replace("-", "_").replace("__", "--", 1) for flag in shown} <= known


def test_the_version_has_an_entry_or_is_unreleased() -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    changelog = (PROJECT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{version}]" in changelog or "## [Unreleased]" in changelog


def test_ci_runs_the_command_of_the_readme() -> None:
    assert "scripts/check" in "\n".join(blocks("README.md", "sh"))
    lines = (PROJECT / ".ci" / "run").read_text("utf-8").splitlines()
    assert lines == ["#!/bin/sh", 'exec "$(dirname -- "$0")/../scripts/check"']


@pytest.mark.parametrize("page", ["README.md", "docs/guides/your-first-task.md"])
def test_the_task_that_is_shown_works(page: str, tmp_path: Path) -> None:
    load = pytest.importorskip("assay.tasks.load")
    task = pytest.importorskip("assay.tasks.task")
    (tmp_path / "sums.jsonl").write_text(blocks(page, "json")[0])
    (tmp_path / "sums.yaml").write_text(blocks(page, "yaml")[0])
    spec = load.load_task(tmp_path / "sums.yaml")
    prompts = [request.prompt.text for _, requests in task.Task(spec).render() for request in requests]
    assert spec.name == "my_sums"
    assert prompts == ["12 + 34 =", "71 + 15 ="]


@pytest.mark.skipif(find_spec("assay.cli") is None, reason="there is no assay.cli yet")
@pytest.mark.parametrize("page", ["README.md", "docs/guides/your-first-task.md"])
def test_the_task_that_is_shown_can_be_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "sums.jsonl").write_text(blocks(page, "json")[0])
    (tmp_path / "sums" / "sums.yaml").write_text(blocks(page, "yaml")[0])
    code = "import sys; from assay.cli import main; sys.argv[0] = 'assay'; main()"
    command = [sys.executable, "-c", code, "run", "--tasks", "sums/sums.yaml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "my_sums" in result.stdout


def test_the_model_of_the_readme_is_a_model_and_answers() -> None:
    names: dict[str, Any] = {}
    exec(blocks("README.md", "python")[0], names)
    parrot = names["Parrot"]()
    request = Generate(task="t", document=0, prompt=Prompt.of_text("say cheese"), settings=Settings())

    async def ask() -> list[object]:
        await parrot.open()
        outcomes = [outcome async for outcome in parrot.answer([request])]
        await parrot.close()
        return outcomes

    assert isinstance(parrot, Model)
    assert asyncio.run(ask()) == [Response(request_id=request.id, value="cheese")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_that_is_shown_is_python(page: Path) -> None:
    for code in blocks(name_of(page), "python"):
        compile(code, str(page), "exec")
