"""The launcher process of a sandboxed program: isolates itself, starts the program, enforces limits and cleans up.

Never imported: its source runs in a new interpreter, after that of `isolation.py`, so that it works where Assay is not
installed or not mounted. It uses little of the standard library, because each program waits for it to start. It reads
one JSON launch specification from standard input and writes JSON lines to the status pipe.

    Assay -> supervisor -> program             resource limits only
    Assay -> supervisor -> init -> program     namespaces; when init (process 1) exits, the kernel kills all others
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
import warnings  # noqa: F401 - os.execvpe imports it when the program's user may not read the standard library
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # defined in the new interpreter already
    from collections.abc import Callable, Iterable

    from assay.sandboxes.isolation import (
        LINUX,
        PR_SET_CHILD_SUBREAPER,
        PR_SET_DUMPABLE,
        PR_SET_NO_NEW_PRIVS,
        PR_SET_PDEATHSIG,
        IsolationError,
        drop_capabilities,
        drop_privileges,
        enable_loopback,
        enter_namespaces,
        enter_new_root,
        install_seccomp_filter,
        restrict_files,
        set_process_option,
        set_resource_limits,
    )

POLL_S = 0.05


# --- the program --------------------------------------------------------------------------------------------------


def write_files(files: dict[str, str]) -> None:
    """Write the program's files to its folder."""
    for name, content in files.items():
        path = os.path.normpath(name)
        if os.path.isabs(path) or path.startswith(".."):
            raise IsolationError(f"the file `{name}` is outside the program's folder")
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))


def join_cgroup(spec: dict[str, Any]) -> None:
    """Join the cgroup of the program. Where the kernel does not allow it, the launcher measures the memory."""
    if spec["cgroup"] >= 0:
        try:
            os.write(spec["cgroup"], b"0")
        except OSError:
            pass


def exec_program(spec: dict[str, Any]) -> NoReturn:
    """Replace this process with the program. Report errors before that on the status pipe."""
    try:
        os.setsid()
        join_cgroup(spec)
        drop_capabilities()
        drop_privileges(spec)
        if os.geteuid() == 0:
            raise IsolationError("the program would run as root")
        set_process_option(PR_SET_NO_NEW_PRIVS, 1)
        write_files(spec["files"])
        write_files({".stdin": spec["stdin"]})
        os.dup2(os.open(".stdin", os.O_RDONLY), 0)
        os.unlink(".stdin")
        for name in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
        set_resource_limits(spec["bounds"])
        if spec["landlock"]:
            restrict_files(spec["readable"], spec["folder"])
        install_seccomp_filter(spec)
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except (IsolationError, OSError, ValueError) as problem:
        report(spec, {"refused": f"{problem}"})
    os._exit(127)


# --- watching -----------------------------------------------------------------------------------------------------


def report(spec: dict[str, Any], fact: dict[str, Any]) -> None:
    """Write one JSON line to the status pipe."""
    if spec["status"] >= 0:
        os.write(spec["status"], (json.dumps(fact) + "\n").encode())


def watch_program(spec: dict[str, Any], child: int, all_in_namespace: bool) -> dict[str, Any]:
    """Wait for the program to exit, or report that it exceeded a limit."""
    deadline = time.monotonic() + spec["bounds"]["time_s"]
    max_bytes = spec["bounds"]["memory_bytes"]
    while True:
        pid, status = os.waitpid(-1 if all_in_namespace else child, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return {"exit": code} if code >= 0 else {"signal": -code}
        if pid:
            continue
        if is_stop_requested(spec):
            return {"ended": "stopped"}
        if time.monotonic() > deadline:
            return {"ended": "time"}
        if LINUX:
            alive = list_processes(all_in_namespace)
            if measure_memory(alive, max_bytes) > max_bytes:
                return {"ended": "memory"}
            if len(alive) > spec["max_processes"]:
                return {"ended": "processes"}
            if count_files(spec) > spec.get("max_files", 0):
                return {"ended": "files"}
        wait_for_child(POLL_S)


def is_stop_requested(spec: dict[str, Any]) -> bool:
    """Return whether Assay requested a stop or exited. Both close the control pipe."""
    if spec["stop"] or spec["control"] < 0:
        return bool(spec["stop"])
    try:
        return os.read(spec["control"], 1) == b""
    except BlockingIOError:
        return False


def wait_for_child(seconds: float) -> None:
    """Sleep until a child exits, at most for `seconds`."""
    if hasattr(signal, "sigtimedwait"):
        signal.sigtimedwait([signal.SIGCHLD], seconds)
    else:
        time.sleep(seconds / 5)


def list_processes(all_in_namespace: bool) -> list[int]:
    """Return the processes of the program: all others in the process namespace, or our descendants."""
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    if all_in_namespace:
        return [number for number in numbers if number != os.getpid()]
    children: dict[int, list[int]] = {}
    for number in numbers:
        try:
            with open(f"/proc/{number}/stat") as file:
                children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(number)
        except (OSError, ValueError, IndexError):
            continue
    found, fresh = [], children.get(os.getpid(), [])
    while fresh:
        found += fresh
        fresh = [number for parent in fresh for number in children.get(parent, [])]
    return found


def measure_memory(numbers: list[int], max_bytes: int) -> int:
    """Return the memory in use by all processes. Reads shared pages exactly only if the rough sum exceeds the limit."""
    rough = {number: read_memory(number) for number in numbers}
    if sum(rough.values()) <= max_bytes or len(numbers) == 1:
        return sum(rough.values())
    return sum(read_proportional_memory(number, otherwise) for number, otherwise in rough.items())


def read_memory(number: int) -> int:
    """Return the memory of a process that no file backs. Pages shared with another process count in full."""
    try:
        with open(f"/proc/{number}/status") as file:
            return sum_fields(file, ("RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"))
    except OSError:
        return 0


def read_proportional_memory(number: int, otherwise: int) -> int:
    """Return the same memory of a process, in which shared pages count in part."""
    try:
        with open(f"/proc/{number}/smaps_rollup") as file:
            return sum_fields(file, ("Pss_Anon:", "Pss_Shmem:", "SwapPss:"))
    except OSError:
        return otherwise


def sum_fields(lines: Iterable[str], names: tuple[str, ...]) -> int:
    """Return the sum of some fields in kB, as bytes."""
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))


def count_files(spec: dict[str, Any]) -> int:
    """Return the number of files in the program's folder, or 0 without a limit on them."""
    if not spec.get("max_files"):
        return 0
    usage = os.statvfs(spec["folder"])
    return usage.f_files - usage.f_ffree


def kill_all(spec: dict[str, Any], child: int) -> None:
    """Kill all remaining processes: at once as their own user if that user is unique, otherwise one by one."""
    if spec["own_user"] and os.geteuid() == 0 and spec["uid"] not in (None, 65534):
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(spec["uid"], spec["uid"], spec["uid"])
                os.kill(-1, signal.SIGKILL)
            except OSError:
                pass
            os._exit(0)
        os.waitpid(pid, 0)
    try:
        os.kill(child, signal.SIGKILL)
    except OSError:
        pass
    until = time.monotonic() + 5
    while time.monotonic() < until:
        left = list_processes(all_in_namespace=False) if LINUX else []
        for how in (
            signal.SIGSTOP,
            signal.SIGKILL,
        ):  # stop first, because a stopped process starts nothing new
            for number in left:
                try:
                    os.kill(number, how)
                except OSError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


# --- the parts ----------------------------------------------------------------------------------------------------


def supervise(
    spec: dict[str, Any], all_in_namespace: bool, start: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Start the program, wait for it, and kill what remains. `start` replaces `exec_program`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    report(spec, {"started": True})
    child = os.fork()
    if child == 0:
        (start or exec_program)(spec)
    fact = watch_program(spec, child, all_in_namespace)
    if not all_in_namespace:
        kill_all(spec, child)
    return fact


def run_init(spec: dict[str, Any]) -> NoReturn:
    """Run process 1 of the namespaces. When it exits, the kernel kills all other processes in them."""
    try:
        set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
        set_process_option(PR_SET_DUMPABLE, 0)
        enter_new_root(spec)
        enable_loopback()
        report(spec, supervise(spec, all_in_namespace=True))
    except (IsolationError, OSError) as problem:
        report(spec, {"refused": f"{problem}"})
    os._exit(0)


def main() -> None:
    """Read the launch specification and run it."""
    spec = json.loads(sys.stdin.buffer.read())
    spec["stop"] = []
    for name in ("status", "control", "cgroup"):
        if spec[name] >= 0:
            os.set_inheritable(spec[name], False)
            os.set_blocking(spec[name], False)
    signal.signal(signal.SIGTERM, lambda *_: spec["stop"].append(True))
    try:
        set_process_option(PR_SET_PDEATHSIG, signal.SIGTERM)
        set_process_option(
            PR_SET_DUMPABLE, 0
        )  # a program with our user must not change the memory of the launcher
        if spec["mode"] == "namespaces":
            enter_namespaces(spec)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])
            init = os.fork()
            if init == 0:
                run_init(spec)
            if spec["stop"] or signal.sigwait([signal.SIGCHLD, signal.SIGTERM]) == signal.SIGTERM:
                os.kill(init, signal.SIGKILL)
            os.waitpid(init, 0)  # returns when the kernel has killed all processes in the namespaces
        else:
            set_process_option(PR_SET_CHILD_SUBREAPER, 1)
            os.chdir(spec["folder"])
            report(spec, supervise(spec, all_in_namespace=spec["mode"] == "inside"))
    except (IsolationError, OSError) as problem:
        report(spec, {"refused": f"{problem}"})


if __name__ == "__main__":
    main()
