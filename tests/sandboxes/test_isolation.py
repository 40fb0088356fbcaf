"""Tests of isolation of the launcher process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from assay.sandboxes import isolation

SOURCE = Path(isolation.__file__).read_text("utf-8")

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def run(code: str) -> str:
    """Run code after the source of the module, in a new interpreter, as the launcher does."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{SOURCE}\n{code}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_resource_limits_are_hard() -> None:
    code = """
set_resource_limits({"time_s": 2.0, "memory_bytes": 1 << 30, "file_bytes": 1000, "open_files": 16, "processes": 5})
print(resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_NOFILE))
print(resource.getrlimit(resource.RLIMIT_CPU))
"""
    assert run(code) == "(1000, 1000) (16, 16)\n(4, 5)"


@linux
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of x86_64")
def test_seccomp_filter_denies_the_listed_calls() -> None:
    code = """
set_process_option(PR_SET_NO_NEW_PRIVS, 1)
install_seccomp_filter({"denied_calls": {"x86_64": (0xC000003E, [41])}})
import socket
try:
    socket.socket()
except PermissionError:
    print("denied")
print(os.getpid() > 0)
"""
    assert run(code) == "denied\nTrue"


def test_seccomp_filter_needs_a_table_for_the_machine() -> None:
    assert run('install_seccomp_filter({"denied_calls": {}}); print("unchanged")') == "unchanged"


def test_errors_of_the_kernel_name_the_call() -> None:
    code = """
try:
    check_result("mount /x", -1)
except IsolationError as error:
    print(str(error).partition(":")[0])
print(check_result("fine", 3))
"""
    assert run(code) == "mount /x\n3"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_root_becomes_another_user() -> None:
    code = """
spec = {"uid": 65534}
drop_privileges(spec)
print(os.getresuid(), os.getgroups(), spec["uid"])
"""
    assert run(code) == "(65534, 65534, 65534) [] 65534"


def test_without_a_user_privileges_stay() -> None:
    assert run('drop_privileges({"uid": None}); print(os.geteuid())') == str(os.geteuid())
