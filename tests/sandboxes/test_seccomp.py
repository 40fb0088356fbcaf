"""Tests of the system call filter. The filter is also interpreted here, so that both machines are tested everywhere."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import struct

import pytest

from assay.sandboxes.seccomp import build_filter, build_filters, list_system_calls

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = "allow", "kill"
DENIED = {
    "x86_64": {
        "ptrace": 101, "mount": 165, "umount2": 166, "unshare": 272, "setns": 308, "bpf": 321, "memfd_create": 319,
        "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "keyctl": 250, "perf_event_open": 298, "userfaultfd": 323,
        "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "mount_setattr": 442,
        "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "open_by_handle_at": 304, "chroot": 161,
        "setuid": 105, "capset": 126, "init_module": 175, "finit_module": 313, "kexec_load": 246, "reboot": 169,
        "personality": 135, "modify_ldt": 154, "memfd_secret": 447,
    },
    "aarch64": {
        "ptrace": 117, "mount": 40, "umount2": 39, "unshare": 97, "setns": 268, "bpf": 280, "memfd_create": 279,
        "shmget": 194, "semget": 190, "msgget": 186, "keyctl": 219, "perf_event_open": 241, "userfaultfd": 282,
        "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "mount_setattr": 442,
        "process_vm_readv": 270, "process_vm_writev": 271, "pidfd_getfd": 438, "open_by_handle_at": 265, "chroot": 51,
        "setuid": 146, "capset": 91, "init_module": 105, "finit_module": 273, "reboot": 142, "memfd_secret": 447,
    },
}  # fmt: skip


def decide(code: bytes, number: int, *arguments: int, architecture: int) -> str | int:
    """Interpret a filter: `allow`, `kill`, or the number of the error."""
    filled = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *filled)
    steps = [struct.unpack_from("HBBI", code, at) for at in range(0, len(code), 8)]
    register, at = 0, 0
    while True:
        operation, then, otherwise, value = steps[at]
        at += 1
        if operation == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif operation == 0x05:
            at += value
        elif operation == 0x06:
            decision: str | int = {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(value, value & 0xFFFF)
            return decision
        else:
            holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[
                operation
            ]
            at += then if holds else otherwise


def ask(machine: str, name: str, *arguments: int, network: bool = True, signals: bool = True) -> str | int:
    code = build_filter(machine, network=network, signals=signals)
    return decide(code, list_system_calls(machine)[name], *arguments, architecture=MACHINES[machine])


@pytest.mark.parametrize("machine", MACHINES)
def test_listed_calls_are_allowed_and_all_others_are_not(machine: str) -> None:
    code = build_filter(machine, network=True, signals=True)
    calls = {number: name for name, number in list_system_calls(machine).items()}
    depends = {"clone3", "socket", "socketpair", "ioctl"}
    for number in range(600):
        found = decide(code, number, architecture=MACHINES[machine])
        if number in calls and calls[number] not in depends:
            assert found == ALLOW, calls[number]
        elif number not in calls:
            assert found == (errno.EPERM if number <= 462 else errno.ENOSYS), number


@pytest.mark.parametrize(
    ("machine", "name"), [(key, name) for key, calls in DENIED.items() for name in calls]
)
def test_dangerous_calls_are_denied(machine: str, name: str) -> None:
    code = build_filter(machine, network=True, signals=True)
    assert decide(code, DENIED[machine][name], architecture=MACHINES[machine]) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: str) -> None:
    thread, child = 0x3D0F00, 17
    assert ask(machine, "clone", thread) == ask(machine, "clone", child) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(machine, "clone", flag | child) == errno.EPERM
    assert ask(machine, "clone3") == errno.ENOSYS
    assert [ask(machine, "socket", family) for family in (1, 2, 10)] == [ALLOW] * 3
    assert {ask(machine, "socket", family) for family in (0, 3, 16, 17, 38, 40, 44)} == {errno.EPERM}
    assert ask(machine, "socketpair", 1) == ALLOW
    assert ask(machine, "mmap", 0, 4096, 3, 0x22) == ALLOW
    assert ask(machine, "mmap", 0, 4096, 3, 0x40022) == errno.EPERM
    assert ask(machine, "fcntl", 3, 1) == ALLOW
    assert ask(machine, "fcntl", 3, 8) == ask(machine, "fcntl", 3, 1031) == errno.EPERM
    assert ask(machine, "ioctl", 0, 0x5401) == ALLOW
    assert ask(machine, "ioctl", 0, 0x5412) == errno.EPERM  # TIOCSTI: writes to a terminal
    assert ask(machine, "prlimit64", 0, 7) == ALLOW
    assert ask(machine, "prlimit64", 1, 7) == ask(machine, "sched_setaffinity", 1) == errno.EPERM
    assert ask(machine, "setpriority", 0, 0, 5) == ALLOW
    assert ask(machine, "setpriority", 2, 0, 5) == ask(machine, "setpriority", 0, 9, 5) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_there_are_no_sockets_and_no_signals(machine: str) -> None:
    for family in (1, 2, 10):
        assert ask(machine, "socket", family, network=False) == errno.EPERM
    assert ask(machine, "socketpair", 1, network=False) == ALLOW
    for name in ("kill", "tgkill", "tkill", "pidfd_send_signal", "rt_sigqueueinfo"):
        assert ask(machine, name, 1, 9, signals=False) == errno.EPERM
    assert ask(machine, "rt_sigaction", signals=False) == ALLOW


def test_other_architectures_are_killed() -> None:
    code = build_filters(network=True, signals=True)["x86_64"]
    assert decide(code, 1, architecture=0x40000003) == KILL  # 32-bit x86, where 1 is `exit`
    assert decide(code, 0x40000000 | 1, architecture=MACHINES["x86_64"]) == errno.ENOSYS  # x32


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_libseccomp(machine: str) -> None:
    found = ctypes.util.find_library("seccomp")
    if found is None:
        pytest.skip("libseccomp is not installed")
    resolve = ctypes.CDLL(found).seccomp_syscall_resolve_name_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    wrong = {
        name: (number, known)
        for name, number in {**list_system_calls(machine), **DENIED[machine]}.items()
        if (known := resolve(MACHINES[machine], name.encode()))
        not in (number, -1)  # -1: newer than the library
    }
    assert wrong == {}
