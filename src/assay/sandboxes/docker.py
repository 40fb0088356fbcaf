"""`docker`: one container per program. Selected only by name, because it needs an image."""

from __future__ import annotations

import shutil
from functools import partial

from assay.core.records.programs import Execution, IsolationReport, Program, SandboxError
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.launch_spec import build_launch_spec, launcher_arguments
from assay.sandboxes.process import LaunchRequest, run_launcher

__all__ = ["DockerSandbox", "docker_command"]


class DockerSandbox:
    """Docker, or a tool with the same options: a new container without network for each program."""

    name = "docker"

    def __init__(self, image: str = "python:3.11-slim", tool: str = "docker", runtime: str = "") -> None:
        self._image, self._tool, self._runtime = image, tool, runtime

    async def inspect(self) -> IsolationReport:
        if shutil.which(self._tool) is None:
            raise SandboxError(f"`{self._tool}` is not installed")
        return await inspect_sandbox(self.name, self.execute, tool=f"{self._tool}, {self._image}")

    async def execute(self, program: Program) -> Execution:
        spec = partial(build_launch_spec, program, mode="inside", folder="/box", interpreter="python3")
        command = docker_command(program, self._image, tool=self._tool, runtime=self._runtime)
        return await run_launcher(
            LaunchRequest(
                sandbox=self.name,
                command=(*command, "python3", *launcher_arguments()),
                build_spec=lambda descriptors: spec(descriptors=descriptors),
                program=program,
                pipes=False,
                start_s=30.0,
            )
        )


def docker_command(program: Program, image: str, *, tool: str = "docker", runtime: str = "") -> list[str]:
    """Return the `docker run` command: one writable folder of limited size, no capabilities, no network, no pull."""
    bounds = program.limits
    return [
        tool,
        "run",
        "--rm",
        "--interactive",
        "--pull=never",
        "--network=none",
        "--read-only",
        f"--tmpfs=/box:rw,nosuid,nodev,exec,size={bounds.file_bytes},mode=1777",
        "--workdir=/box",
        "--user=65534:65534",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--memory={bounds.memory_bytes}",
        f"--memory-swap={bounds.memory_bytes}",
        f"--pids-limit={bounds.processes + 1}",  # the launcher is one of them
        "--ipc=none",
        "--log-driver=none",
        *([f"--runtime={runtime}"] if runtime else []),
        image,
    ]
