"""Programs that try to get out, in every sandbox that works here. Each attempt is bounded by itself as well."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sandboxes.attacks import run_attacks
from tests.sandboxes.conftest import Box

from assay.core.records.programs import Program, ResourceLimits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

Alive = Callable[[str], list[str]]

MANY_PROCESSES = """
import os, time
started = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
    except OSError:
        break
    started += 1
print(started, flush=True)
time.sleep(0.3)
"""

DAEMON = """
import subprocess, sys, time
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", "import os, time; os.fork(); os.setsid(); time.sleep(30)", "{word}"],
        start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
time.sleep(0.3)
{then}
"""


def test_many_processes_are_too_many(box: Box, alive: Alive) -> None:
    done = box.run(MANY_PROCESSES, processes=30)
    assert done.exit_reason == "processes" or 0 < int(done.stdout) <= 30


def test_memory_past_the_bound_is_not_had(box: Box) -> None:
    done = box.run(
        "kept = []\nwhile len(kept) < 1000: kept.append(bytearray(1 << 24))", memory_bytes=200 << 20
    )
    assert done.exit_reason == "memory"


def test_memory_of_several_processes_is_counted_together(box: Box) -> None:
    source = "import os, time\nfor _ in range(3): os.fork()\nkept = b'x' * (60 << 20)\ntime.sleep(5)"
    done = box.run(source, memory_bytes=200 << 20)
    assert done.exit_reason == "memory"
    assert done.seconds < 5


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_cut(box: Box, stream: str) -> None:
    done = box.run(f"import sys\nfor _ in range(10**7): sys.{stream}.write('x' * 1000)", output_bytes=10_000)
    assert done.exit_reason == "output"
    assert len(getattr(done, stream)) == 10_000


def test_sleeping_for_ever_ends(box: Box) -> None:
    done = box.run("import time\ntime.sleep(60)", time_s=0.4)
    assert (done.exit_reason, done.exit_code) == ("time", None)
    assert done.seconds < 10


def test_not_listening_to_signals_does_not_help(box: Box) -> None:
    source = "import signal, time\nfor n in range(1, 32):\n    try: signal.signal(n, lambda *_: 0)\n    except OSError: pass\n"
    assert box.run(source + "while True: time.sleep(60)", time_s=0.4).exit_reason == "time"


def test_the_home_folder_cannot_be_read(box: Box, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "secret").write_text("the key")
    done = box.run(f"print(open({str(home / 'secret')!r}).read())")
    assert ("the key" not in done.stdout) == box.keeps("files of the home folder")


def test_a_server_outside_is_not_reached(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        done = box.run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nprint('reached')")
        assert "reached" not in done.stdout
        with pytest.raises(TimeoutError):
            server.accept()
    assert box.keeps("network")


def test_no_other_process_can_be_ended(box: Box) -> None:
    word = secrets.token_hex(8)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)", word]) as victim:
        try:
            source = (
                "import os\nfor number in ({victim}, {tests}, os.getppid()):\n"
                "    try: os.kill(number, 9 if number != {tests} else 10)\n"
                "    except OSError as problem: print('refused', flush=True)\nprint('end')"
            )
            done = box.run(source.format(victim=victim.pid, tests=os.getpid()))
            assert victim.poll() is None
            assert done.exit_reason in ("exited", "signal")
            assert box.keeps("other processes")
        finally:
            victim.kill()


def test_nothing_is_written_outside_of_its_folder(box: Box, tmp_path: Path) -> None:
    outside = Path(tempfile.gettempdir()) / f"assay-test-{secrets.token_hex(8)}"
    try:
        box.run(f"open({str(outside)!r}, 'w').write('x')")
        assert (not outside.exists()) == box.keeps("writing outside of its folder")
    finally:
        outside.unlink(missing_ok=True)


def test_the_disk_is_not_filled(box: Box) -> None:
    source = (
        "import os\nsizes = []\nfor name in 'abcd':\n"
        "    try:\n        with open(name, 'wb', buffering=0) as file:\n"
        "            for _ in range(40): file.write(b'x' * (1 << 20))\n"
        "    except OSError: pass\n    sizes.append(os.path.getsize(name))\nprint(max(sizes), sum(sizes))"
    )
    done = box.run(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + source, file_bytes=5 << 20
    )
    largest, together = map(int, done.stdout.split())
    assert largest <= 5 << 20
    assert (together <= 5 << 20) == box.keeps("the sum of its files")


@pytest.mark.parametrize(
    ("then", "bounds", "ending"),
    [
        ("", {}, "exited"),
        ("time.sleep(60)", {"time_s": 1.0}, "time"),
        ("while True: print('x' * 1000)", {"output_bytes": 5000}, "output"),
    ],
)
def test_nothing_outlives_the_program(
    box: Box, alive: Alive, then: str, bounds: dict[str, float], ending: str
) -> None:
    word = secrets.token_hex(8)
    done = box.run(DAEMON.format(word=word, then=then), **bounds)
    assert done.exit_reason == ending
    assert alive(word) == []


def test_nothing_outlives_a_run_that_was_stopped(box: Box, alive: Alive) -> None:
    word = secrets.token_hex(8)
    program = Program(
        source=DAEMON.format(word=word, then="time.sleep(120)"), limits=ResourceLimits(time_s=60)
    )

    async def stop() -> None:
        task = asyncio.create_task(box.sandbox.execute(program))
        until = time.monotonic() + 40  # a busy machine starts slowly
        while not (started := alive(word)) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert started, "the program did not start"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
    assert alive(word) == []


def test_nothing_outlives_assay(box: Box, alive: Alive) -> None:
    """The process that asked is killed: the sandbox notices and ends the program."""
    word = secrets.token_hex(8)
    code = (
        "import asyncio, sys\nfrom assay.core.records.programs import Program, ResourceLimits\nfrom assay.sandboxes import make_sandbox\n"
        "program = Program(source=sys.argv[1], limits=ResourceLimits(time_s=120))\n"
        f"asyncio.run(make_sandbox({box.sandbox.name!r}, {box.arguments!r}).execute(program))"
    )
    source = DAEMON.format(word=word, then="time.sleep(120)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code, source], env=environment) as asking:
        until = time.monotonic() + 50
        while not (begun := len(alive(word)) >= 4) and time.monotonic() < until:  # it and the three daemons
            time.sleep(0.05)
        assert begun, "the program did not start"
        asking.kill()
    until = time.monotonic() + 40
    while alive(word) and time.monotonic() < until:
        time.sleep(0.05)
    assert alive(word) == []


def test_the_environment_of_others_cannot_be_read(box: Box) -> None:
    token = secrets.token_hex(8)
    environment = {**os.environ, "SOME_API_KEY": token}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], env=environment) as other:
        try:
            source = (
                "import glob, os\nfor path in ['/proc/%d/environ', *glob.glob('/proc/[0-9]*/environ')]:\n"
                "    try: print(open(path, errors='replace').read())\n    except OSError: pass\nprint(dict(os.environ))"
            )
            done = box.run(source.replace("%d", str(other.pid)))
        finally:
            other.kill()
    assert (token not in done.stdout) == box.keeps("the environment of other processes")


def test_its_own_environment_holds_no_keys(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    done = box.run("import os\nprint(*sorted(os.environ))")
    assert set(done.stdout.split()) <= {
        "PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
    }  # fmt: skip


def test_rights_are_not_won_back(box: Box) -> None:
    source = (
        "import ctypes, os\nfor name in ('setuid', 'setgid'):\n    try:\n        getattr(os, name)(0)\n"
        "    except OSError: print('refused')\nlibrary = ctypes.CDLL(None)\n"
        "print(library.prctl(39, 0, 0, 0, 0), library.prctl(21, 0, 0, 0, 0), os.getuid() > 0)"
    )
    assert box.run(source).stdout == "refused\nrefused\n1 2 True\n"  # no_new_privs, a seccomp filter


def test_attacks_of_the_soak_test_do_not_escape(box: Box) -> None:
    """A few of them; `make soak` runs all."""
    names = ("unshare user", "clone into a user namespace", "fsopen", "memfd", "shmget", "socket vsock",
             "write the launcher's memory", "priority of the user", "more shared memory than allowed")  # fmt: skip
    escaped, endings = asyncio.run(run_attacks(box.sandbox, names))
    assert escaped == []
    assert endings["memory"] == 1 and endings.total() == len(names)
