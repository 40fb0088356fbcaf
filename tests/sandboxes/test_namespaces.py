"""Tests of the namespaces sandbox."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from assay.core.records.programs import Program, SandboxError
from assay.sandboxes.namespaces import NamespacesSandbox


@pytest.fixture(scope="module")
def sandbox() -> NamespacesSandbox:
    sandbox = NamespacesSandbox()
    try:
        asyncio.run(sandbox.inspect())
    except SandboxError as error:
        pytest.skip(f"namespaces do not work here: {error}")
    return sandbox


def test_program_is_alone_in_its_process_table(sandbox: NamespacesSandbox) -> None:
    source = "import os; print(os.getpid() < 10, os.getcwd(), os.listdir('.'))"
    done = asyncio.run(sandbox.execute(Program(source=source)))
    assert done.stdout == "True /box ['program.py']\n"


def test_root_file_system_is_read_only(sandbox: NamespacesSandbox) -> None:
    source = "import os\ntry: os.mkdir('/new')\nexcept OSError as error: print(error.strerror)"
    assert asyncio.run(sandbox.execute(Program(source=source))).stdout.strip() in (
        "Read-only file system",
        "Permission denied",
    )


def test_an_environment_behind_a_link_works(sandbox: NamespacesSandbox, tmp_path: Path) -> None:
    link = tmp_path / "environment"
    link.symlink_to(sys.prefix)
    linked = NamespacesSandbox(python=str(link / "bin" / Path(sys.executable).name))
    done = asyncio.run(linked.execute(Program(source="import sys; print(sys.prefix)")))
    assert done.stdout.strip() == str(link)


def test_other_systems_are_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="needs Linux"):
        asyncio.run(NamespacesSandbox().inspect())
