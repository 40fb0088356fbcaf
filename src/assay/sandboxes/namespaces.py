"""`namespaces`: a file system, process table and network of its own, from the Linux kernel alone."""

from __future__ import annotations

import sys
import tempfile
from functools import partial

from assay.core.programs import Execution, Isolation, NotExecuted, Program
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.orders import launcher_arguments, link_targets, order_for, own_user, readable_folders
from assay.sandboxes.process import Launch, launch

__all__ = ["NamespacesSandbox"]


class NamespacesSandbox:
    """Linux namespaces: no network, no other processes, no files but the interpreter's; needs nothing installed."""

    name = "namespaces"

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def inspect(self) -> Isolation:
        if sys.platform != "linux":
            raise NotExecuted(f"the sandbox `{self.name}` needs Linux")
        return await inspect_sandbox(
            self.name,
            self.execute,
            kept=("the number of processes", "the sum of its files"),
            visible=readable_folders(self._python),
        )

    async def execute(self, program: Program) -> Execution:
        order = partial(
            order_for,
            program,
            mode="namespaces",
            folder="/box",
            uid=own_user(),
            readable=readable_folders(self._python),
            links=link_targets(),
            stage=tempfile.gettempdir(),
            interpreter=self._python,
        )
        return await launch(
            Launch(
                sandbox=self.name,
                command=(sys.executable, *launcher_arguments()),
                order=lambda pipes: order(pipes=pipes),
                program=program,
            )
        )
