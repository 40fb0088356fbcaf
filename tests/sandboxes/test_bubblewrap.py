"""Tests of the bubblewrap sandbox."""

from __future__ import annotations

import asyncio
import shutil
import sys
from itertools import pairwise
from typing import Any

import pytest

from assay.core.records.programs import Program, ResourceLimits, SandboxError
from assay.sandboxes.bubblewrap import BubblewrapSandbox, bubblewrap_command

PROGRAM = Program(source="pass", limits=ResourceLimits(file_bytes=500))


@pytest.fixture
def bwrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of `bwrap` without the newer options."""
    if shutil.which("bwrap") is None:
        from types import SimpleNamespace

        def run(*_: Any, **__: Any) -> SimpleNamespace:
            return SimpleNamespace(stdout="--ro-bind", stderr="")

        monkeypatch.setattr("assay.sandboxes.bubblewrap.subprocess.run", run)


@pytest.mark.usefixtures("bwrap")
def test_command_has_no_network_and_a_read_only_root() -> None:
    command = bubblewrap_command(PROGRAM.limits, sys.executable, root=False)
    assert {"--unshare-net", "--unshare-pid", "--unshare-user", "--die-with-parent"} <= {*command}
    assert command[-1] == "--"
    assert command[command.index("--chdir") + 1] == "/box"
    assert ("--remount-ro", "/") in list(pairwise(command))


@pytest.mark.usefixtures("bwrap")
def test_root_keeps_only_the_capabilities_of_the_launcher() -> None:
    command = bubblewrap_command(PROGRAM.limits, sys.executable, root=True)
    assert command[command.index("--cap-drop") + 1] == "ALL"
    added = [command[index + 1] for index, word in enumerate(command) if word == "--cap-add"]
    assert added == ["CAP_SETUID", "CAP_SETGID", "CAP_SYS_PTRACE"]
    assert "--unshare-user" not in command


def test_missing_tool_is_a_sandbox_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="`bwrap` is not installed"):
        asyncio.run(BubblewrapSandbox().inspect())
