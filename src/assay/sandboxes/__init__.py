"""Sandboxes run untrusted programs: Program -> Execution. They know nothing of models and scores."""

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
"""The sandboxes by name: a class or function that accepts the arguments of the sandbox."""

SANDBOXES.add_lazy("bubblewrap", "assay.sandboxes.bubblewrap:BubblewrapSandbox")
SANDBOXES.add_lazy("docker", "assay.sandboxes.docker:DockerSandbox")
SANDBOXES.add_lazy("limits", "assay.sandboxes.limits:LimitsSandbox")
SANDBOXES.add_lazy("namespaces", "assay.sandboxes.namespaces:NamespacesSandbox")

STRONGEST_FIRST = ("bubblewrap", "namespaces", "limits")
"""The sandboxes that `auto` tries. Docker needs an image, so it must be selected by name."""


def make_sandbox(name: str, arguments: Mapping[str, Any]) -> Sandbox:
    """Create a sandbox without starting anything.

    Raises:
        UnknownName: The sandbox does not exist.
        InvalidOption: The sandbox does not accept these arguments.
    """
    factory = SANDBOXES.get(name, where="--sandbox")
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise InvalidOption(
            f"invalid arguments for the sandbox `{name}`: {error}", where="--sandbox_args"
        ) from None
    return factory(**arguments)


async def choose_sandbox(name: str, arguments: Mapping[str, Any]) -> tuple[Sandbox, IsolationReport]:
    """Return a sandbox and its isolation report. `auto` selects the strongest sandbox that works.

    Raises:
        InvalidOption: The sandbox does not work on this machine.
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
