"""`namespaces`: a separate file system, process table and network, with the Linux kernel alone."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial

from assay.core.records.programs import Execution, IsolationReport, Program, SandboxError
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.launch_spec import (
    build_launch_spec,
    launcher_arguments,
    link_targets,
    pick_unused_user,
    readable_folders,
)
from assay.sandboxes.process import LaunchRequest, run_launcher

__all__ = ["NamespacesSandbox"]


class NamespacesSandbox:
    """Linux namespaces: no network, no other processes, only the interpreter's files. Needs no other program."""

    name = "namespaces"

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def inspect(self) -> IsolationReport:
        if sys.platform != "linux":
            raise SandboxError(f"the sandbox `{self.name}` needs Linux")
        return await inspect_sandbox(
            self.name,
            self.execute,
            tool=f"Linux {os.uname().release.split('-')[0]}",
            visible=readable_folders(self._python),
        )

    async def execute(self, program: Program) -> Execution:
        spec = partial(
            build_launch_spec,
            program,
            mode="namespaces",
            folder="/box",
            uid=pick_unused_user(),
            readable=readable_folders(self._python),
            links=link_targets(),
            stage=tempfile.gettempdir(),
            interpreter=self._python,
        )
        return await run_launcher(
            LaunchRequest(
                sandbox=self.name,
                command=(sys.executable, *launcher_arguments()),
                build_spec=lambda descriptors: spec(descriptors=descriptors),
                program=program,
            )
        )
