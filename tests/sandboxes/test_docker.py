"""Tests of the docker sandbox."""

from __future__ import annotations

import asyncio

import pytest

from assay.core.records.programs import Program, ResourceLimits, SandboxError
from assay.sandboxes.docker import DockerSandbox, docker_command


def test_container_has_no_network_no_capabilities_and_the_same_limits() -> None:
    program = Program(source="pass", limits=ResourceLimits(memory_bytes=1000, file_bytes=500, processes=7))
    command = docker_command(program, "python:3.11-slim", tool="podman", runtime="runsc")
    assert command[:2] == ["podman", "run"]
    assert command[-1] == "python:3.11-slim"
    assert {
        "--rm", "--interactive", "--pull=never", "--network=none", "--read-only", "--cap-drop=ALL", "--memory=1000",
        "--memory-swap=1000", "--pids-limit=8", "--user=65534:65534", "--security-opt=no-new-privileges",
        "--runtime=runsc",
    } <= {*command}  # fmt: skip
    assert any(word.startswith("--tmpfs=/box:") and "size=500" in word for word in command)


def test_missing_tool_is_a_sandbox_error() -> None:
    with pytest.raises(SandboxError, match="`no-such-tool` is not installed"):
        asyncio.run(DockerSandbox(tool="no-such-tool").inspect())
