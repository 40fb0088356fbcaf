"""Where untrusted code runs: Program -> Execution. Knows nothing of who wrote a program and what it is worth."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.ports import Sandbox
from assay.core.programs import IsolationReport, SandboxError
from assay.core.registry import Registry

__all__ = ["SANDBOXES", "STRONGEST_FIRST", "choose_sandbox", "make_sandbox"]

SANDBOXES: Registry[Callable[..., Sandbox]] = Registry("sandbox", plural="sandboxes")
"""Name -> a class or function that takes the sandbox's arguments."""

SANDBOXES.add_lazy("bubblewrap", "assay.sandboxes.bubblewrap:BubblewrapSandbox")
SANDBOXES.add_lazy("docker", "assay.sandboxes.docker:DockerSandbox")
SANDBOXES.add_lazy("limits", "assay.sandboxes.limits:LimitsSandbox")
SANDBOXES.add_lazy("namespaces", "assay.sandboxes.namespaces:NamespacesSandbox")

STRONGEST_FIRST = ("bubblewrap", "namespaces", "limits")
"""What `auto` tries. Docker needs an image, so it is chosen by name."""


def make_sandbox(name: str, arguments: Mapping[str, Any]) -> Sandbox:
    """A sandbox with its arguments; nothing is started.

    Raises:
        UnknownName: No sandbox is called that.
        InvalidOption: It does not take these arguments.
    """
    factory = SANDBOXES.get(name, where="--sandbox")
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise InvalidOption(
            f"the sandbox `{name}` does not take these arguments: {error}", where="--sandbox_args"
        ) from None
    return factory(**arguments)


async def choose_sandbox(name: str, arguments: Mapping[str, Any]) -> tuple[Sandbox, IsolationReport]:
    """The sandbox of a name, or with `auto` the strongest that works here, and what it isolates.

    Raises:
        InvalidOption: It does not work on this machine.
    """
    why: list[str] = []
    for candidate in STRONGEST_FIRST if name == "auto" else (name,):
        sandbox = make_sandbox(candidate, arguments)
        try:
            return sandbox, await sandbox.inspect()
        except SandboxError as problem:
            why.append(f"{candidate}: {problem.what}")
    raise InvalidOption(
        "no sandbox works on this machine" if name == "auto" else f"the sandbox `{name}` does not work here",
        where="--sandbox",
        hint="; ".join(why),
    )
