"""Sandboxes run untrusted programs: Program -> Execution. They know nothing of models and scores.

The limits of memory, time, processes and output are `ResourceLimits` in `assay.core.records.programs`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.ports import Sandbox
from assay.core.records.programs import IsolationReport, SandboxError
from assay.core.registry import Registry

__all__ = ["SANDBOXES", "STRONGEST_FIRST", "choose_sandbox", "make_sandbox"]

SANDBOXES: Registry[Callable[..., Sandbox]] = Registry("sandbox", plural="sandboxes")
"""The sandboxes by name: a class or function that accepts the arguments of the sandbox."""

SANDBOXES.add_lazy("bubblewrap", "assay.sandboxes.bubblewrap:BubblewrapSandbox")
SANDBOXES.add_lazy("docker", "assay.sandboxes.docker:DockerSandbox")
SANDBOXES.add_lazy("limits", "assay.sandboxes.no_namespaces:LimitsSandbox")
SANDBOXES.add_lazy("namespaces", "assay.sandboxes.namespaces:NamespacesSandbox")

STRONGEST_FIRST = ("bubblewrap", "namespaces")
"""The sandboxes that `auto` tries. `docker` needs an image and `limits` isolates less, so they must be selected by name."""


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


async def choose_sandbox(
    name: str, arguments: Mapping[str, Any], *, i_know: bool = False
) -> tuple[Sandbox, IsolationReport]:
    """Return a sandbox and its isolation report. `auto` selects the first one that blocks everything.

    `i_know` accepts a sandbox, selected by name, that does not block everything.

    Raises:
        InvalidOption: The sandbox does not work on this machine, or does not block everything.
    """
    if name != "auto":
        return await _open_sandbox(name, arguments, i_know)
    why: list[str] = []
    for candidate in STRONGEST_FIRST:
        try:
            return await _open_sandbox(candidate, arguments, False)
        except InvalidOption as problem:
            why.append(f"{candidate}: {problem.what}")
    raise InvalidOption(
        "no sandbox isolates programs on this machine",
        where="--sandbox",
        hint="install `bubblewrap`, use --sandbox docker, or accept less isolation with `--sandbox limits --i-know` ("
        + "; ".join(why)
        + ")",
    )


async def _open_sandbox(
    name: str, arguments: Mapping[str, Any], i_know: bool
) -> tuple[Sandbox, IsolationReport]:
    sandbox = make_sandbox(name, arguments)
    try:
        report = await sandbox.inspect()
    except SandboxError as problem:
        raise InvalidOption(
            f"the sandbox `{name}` does not work here: {problem.what}", where="--sandbox", hint=problem.hint
        ) from None
    if report.not_isolated and not i_know:
        raise InvalidOption(
            f"the sandbox `{name}` does not block or limit: {', '.join(report.not_isolated)}",
            where="--sandbox",
            hint="use --sandbox auto, or add --i-know to run model-written programs in it all the same",
        )
    return sandbox, report
