"""Tests of isolation of the launcher process."""

from __future__ import annotations

import base64
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from assay.sandboxes import isolation
from assay.sandboxes.no_namespaces import landlock_version
from assay.sandboxes.seccomp import build_filters

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
def test_seccomp_filter_of_the_machine_is_installed() -> None:
    filters = build_filters(network=False, signals=True)
    if platform.machine() not in filters:
        pytest.skip("no filter for this machine")
    encoded = {machine: base64.b64encode(code).decode() for machine, code in filters.items()}
    code = f"""
set_process_option(PR_SET_NO_NEW_PRIVS, 1)
install_seccomp_filter({{"seccomp": {encoded}}})
import socket
try:
    socket.socket()
except PermissionError:
    print("denied")
print(os.getpid() > 0)
"""
    assert run(code) == "denied\nTrue"


@linux
def test_a_machine_without_a_filter_is_refused() -> None:
    code = """
try:
    install_seccomp_filter({"seccomp": {}})
except IsolationError as error:
    print(error)
"""
    assert run(code) == f"there is no system call filter for {platform.machine()} machines"


@linux
def test_a_refused_filter_is_an_error() -> None:
    code = """
try:
    install_seccomp_filter({"seccomp": {os.uname().machine: ""}})
except IsolationError as error:
    print(error)
"""
    assert run(code).startswith("seccomp: ")


@linux
@pytest.mark.skipif(not landlock_version(), reason="needs Landlock")
def test_landlock_leaves_the_given_folders(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "secret").write_text("x")
    code = f"""
set_process_option(PR_SET_NO_NEW_PRIVS, 1)
restrict_files(["/usr"], {str(tmp_path / "open")!r})
with open({str(tmp_path / "open" / "a")!r}, "w") as file:
    print(file.write("x"))
print(len(os.listdir("/usr")) > 0)
for path, mode in (({str(tmp_path / "secret")!r}, "r"), ({str(tmp_path / "new")!r}, "w"), ("/proc/self/environ", "r")):
    try:
        open(path, mode)
    except PermissionError:
        print("denied")
"""
    assert run(code) == "1\nTrue\ndenied\ndenied\ndenied"


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
