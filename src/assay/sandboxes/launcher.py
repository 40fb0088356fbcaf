"""Runs inside the new process, before the program and then beside it: isolates, bounds, starts, watches, cleans up.

Never imported: its source, after that of `kernel.py`, is handed to a fresh interpreter, so that it also works where
Assay is not installed or not mounted. Standard library only, and little of it: each program waits for this to start.
One JSON message on standard input says what to do; JSON lines on the status pipe say what happened.

    Assay -> supervisor -> program             resource limits only
    Assay -> supervisor -> init -> program     namespaces; init is process 1 in there: when it ends, all end
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # in the fresh interpreter these are there already
    from assay.sandboxes.isolation import (
        LINUX,
        PR_CAPBSET_DROP,
        PR_SET_CHILD_SUBREAPER,
        PR_SET_NO_NEW_PRIVS,
        PR_SET_PDEATHSIG,
        Refused,
        drop,
        limit,
        new_root,
        prctl,
        raise_loopback,
        refuse_calls,
        unshare,
    )

POLL_S = 0.05


# --- the program --------------------------------------------------------------------------------------------------


def write_files(files: dict[str, str]) -> None:
    """The program's files, into its folder."""
    for name, content in files.items():
        path = os.path.normpath(name)
        if os.path.isabs(path) or path.startswith(".."):
            raise Refused(f"the file `{name}` is outside of the program's folder")
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))


def become(order: dict[str, Any]) -> NoReturn:
    """Turn into the program; what fails before is told on the status pipe."""
    try:
        os.setsid()
        drop(order)
        if os.geteuid() == 0 and LINUX:  # the interpreter is root's alone: at least without root's rights
            for number in range(64):
                prctl(PR_CAPBSET_DROP, number)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        write_files(order["files"])
        write_files({".stdin": order["stdin"]})
        os.dup2(os.open(".stdin", os.O_RDONLY), 0)
        os.unlink(".stdin")
        for name in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        limit(order["bounds"])
        refuse_calls(order)
        os.execvpe(order["command"][0], order["command"], order["environment"])
    except (Refused, OSError, ValueError) as problem:
        tell(order, {"refused": f"{problem}"})
    os._exit(127)


# --- watching -----------------------------------------------------------------------------------------------------


def tell(order: dict[str, Any], fact: dict[str, Any]) -> None:
    """One line on the status pipe."""
    if order["status"] >= 0:
        os.write(order["status"], (json.dumps(fact) + "\n").encode())


def watch(order: dict[str, Any], child: int, everybody: bool) -> dict[str, Any]:
    """Wait for the program's end, or make it end when it is past its time or its memory."""
    ends = time.monotonic() + order["bounds"]["time_s"]
    most = order["bounds"]["memory_bytes"]
    while True:
        pid, status = os.waitpid(-1 if everybody else child, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return {"exit": code} if code >= 0 else {"signal": -code}
        if pid:
            continue
        if stopped(order):
            return {"ended": "stopped"}
        if time.monotonic() > ends:
            return {"ended": "time"}
        if LINUX:
            alive = processes(everybody)
            if memory_of(alive, most) > most:
                return {"ended": "memory"}
            if len(alive) > order["most_processes"]:
                return {"ended": "processes"}
        pause(POLL_S)


def stopped(order: dict[str, Any]) -> bool:
    """Assay asked for an end, or is no more: both close the control pipe."""
    if order["stop"] or order["control"] < 0:
        return bool(order["stop"])
    try:
        return os.read(order["control"], 1) == b""
    except BlockingIOError:
        return False


def pause(seconds: float) -> None:
    """Sleep, but not past the end of a child."""
    if hasattr(signal, "sigtimedwait"):
        signal.sigtimedwait([signal.SIGCHLD], seconds)
    else:
        time.sleep(seconds / 5)


def processes(everybody: bool) -> list[int]:
    """The program and what it started: everybody else in our own process namespace, or our descendants."""
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    if everybody:
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


def memory_of(numbers: list[int], most: int) -> int:
    """Bytes in use by all of them; what they share is looked at closely only when the rough sum is past the bound."""
    rough = {number: own_memory(number) for number in numbers}
    if sum(rough.values()) <= most or len(numbers) == 1:
        return sum(rough.values())
    return sum(fair_share(number, otherwise) for number, otherwise in rough.items())


def own_memory(number: int) -> int:
    """Bytes of one process that come from no file; what it shares with a process it was copied from counts in full."""
    try:
        with open(f"/proc/{number}/statm") as file:
            words = file.read().split()
        return (int(words[1]) - int(words[2])) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def fair_share(number: int, otherwise: int) -> int:
    """Bytes of one process, with pages it shares counted in part."""
    try:
        with open(f"/proc/{number}/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return otherwise


def end_all(order: dict[str, Any], child: int) -> None:
    """End whatever is left. As its own user in one stroke where that user is nobody else's; else one by one."""
    if order["own_user"] and os.geteuid() == 0 and order["uid"] not in (None, 65534):
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(order["uid"], order["uid"], order["uid"])
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
        left = processes(everybody=False) if LINUX else []
        for how in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: what is stopped starts nothing new
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


def supervise(order: dict[str, Any], everybody: bool) -> dict[str, Any]:
    """Start the program, wait, end what is left of it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    tell(order, {"started": True})
    child = os.fork()
    if child == 0:
        become(order)
    fact = watch(order, child, everybody)
    if not everybody:
        end_all(order, child)
    return fact


def run_init(order: dict[str, Any]) -> NoReturn:
    """Process 1 of the namespaces. When it exits, the kernel ends everything else in there."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        new_root(order)
        raise_loopback()
        tell(order, supervise(order, everybody=True))
    except (Refused, OSError) as problem:
        tell(order, {"refused": f"{problem}"})
    os._exit(0)


def main() -> None:
    """Read the order and carry it out."""
    order = json.loads(sys.stdin.buffer.read())
    order["stop"] = []
    for name in ("status", "control"):
        if order[name] >= 0:
            os.set_inheritable(order[name], False)
            os.set_blocking(order[name], False)
    signal.signal(signal.SIGTERM, lambda *_: order["stop"].append(True))
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        if order["mode"] == "namespaces":
            unshare(order)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])
            init = os.fork()
            if init == 0:
                run_init(order)
            if order["stop"] or signal.sigwait([signal.SIGCHLD, signal.SIGTERM]) == signal.SIGTERM:
                os.kill(init, signal.SIGKILL)
            os.waitpid(init, 0)  # returns when the kernel has ended everybody in there
        else:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            os.chdir(order["folder"])
            tell(order, supervise(order, everybody=order["mode"] == "inside"))
    except (Refused, OSError) as problem:
        tell(order, {"refused": f"{problem}"})


if __name__ == "__main__":
    main()
