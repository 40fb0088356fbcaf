"""Sandbox sessions: commands, files and snapshots in one workspace, and hostile content that must not escape or hang.

Runs the source of `session_server.py` in every test.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.sandboxes.attacks import run_attacks

from assay.core.records.programs import (
    Execution,
    ExitReason,
    IsolationReport,
    Program,
    ResourceLimits,
    SandboxError,
)
from assay.sandboxes.sessions import SandboxSession, WorkspaceError
from assay.sandboxes.snapshots import SnapshotError, SnapshotStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")


def open_session(folder: Path, sandbox: str = "namespaces", **more: object) -> SandboxSession:
    try:
        return SandboxSession(SnapshotStore(folder), sandbox=sandbox, **more).open()  # type: ignore[arg-type]
    except SandboxError as problem:
        pytest.skip(f"{sandbox}: {problem.what}")


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap"])
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxSession]:
    """One session for many tests; each test uses paths of its own or starts with `clear`."""
    limits = ResourceLimits(output_bytes=20_000)
    with open_session(
        tmp_path_factory.mktemp("store"), request.param, limits=limits, max_files=2000
    ) as opened:
        yield opened


@pytest.fixture
def clear(session: SandboxSession) -> Iterator[SandboxSession]:
    """An empty workspace, also after the test."""
    empty = session.store.add_snapshot([])
    session.restore(empty)
    yield session
    session.restore(empty)


def shell(session: SandboxSession, text: str, timeout_s: float = 30.0) -> str:
    done = session.run(["bash", "-c", text], timeout_s=timeout_s)
    assert done.succeeded, done
    return done.stdout


# --- commands ------------------------------------------------------------------------------------------------------


def test_files_stay_between_commands_and_processes_do_not(session: SandboxSession) -> None:
    shell(session, "echo one > kept.txt; sleep 600 & echo $! > pid.txt")
    assert shell(session, "cat kept.txt") == "one\n"
    if not sys.executable.startswith("/tmp/"):  # then /tmp shows the interpreter
        assert shell(session, "ls /tmp/kept.txt") == "/tmp/kept.txt\n"
    assert shell(session, "pgrep sleep | wc -l") == "0\n"


def test_input_environment_folder_and_merged_output(session: SandboxSession) -> None:
    shell(session, "mkdir -p inner")
    done = session.run(
        ["bash", "-c", "cat; echo $EXTRA >&2; pwd; echo $HOME"],
        b"typed\n",
        environment={"EXTRA": "more"},
        merge_output=True,
        folder="/box/inner",
    )
    assert (done.stdout, done.stderr) == ("typed\nmore\n/box/inner\n/box\n", "")


@pytest.mark.parametrize(
    ("command", "reason", "code"),
    [
        pytest.param("exit 3", "exited", 3, id="exit code"),
        pytest.param("kill -9 $$", "signal", None, id="signal"),
        pytest.param("sleep 600", "time", None, id="time limit"),
        pytest.param("trap '' TERM HUP; setsid sleep 600 & wait", "time", None, id="ignored signals"),
    ],
)
def test_how_commands_end(session: SandboxSession, command: str, reason: str, code: int | None) -> None:
    done = session.run(["bash", "-c", command], timeout_s=0.5 if reason == "time" else 30.0)
    assert (done.exit_reason, done.exit_code) == (reason, code)


def test_a_command_that_does_not_exist_exits_with_127(session: SandboxSession) -> None:
    done = session.run(["/no/such/program"])
    assert (done.exit_code, done.stderr) == (
        127,
        "cannot run `/no/such/program`: No such file or directory\n",
    )


def test_the_middle_of_50_mb_of_output_is_left_out(session: SandboxSession) -> None:
    done = session.run(["bash", "-c", "echo first; yes | head -c 50000000; echo last"], timeout_s=60)
    assert done.succeeded and done.output_bytes == 50_000_011
    assert done.stdout.startswith("first\ny\n") and done.stdout.endswith("y\nlast\n")
    assert "\n[49980011 bytes of output are not shown]\n" in done.stdout
    assert len(done.stdout) < 21_000


def test_a_started_process_runs_beside_commands_until_it_is_stopped(session: SandboxSession) -> None:
    with session.start(["cat"]) as process:
        os.write(process.stdin, b"hello")
        assert os.read(process.stdout, 100) == b"hello"
        shell(session, "true")
        os.write(process.stdin, b"again")
        assert os.read(process.stdout, 100) == b"again"
        process.stop()
        assert process.wait().get("ended") == "stopped"


def test_only_the_session_reaches_a_listening_socket(session: SandboxSession) -> None:
    with session.listen() as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"answer")

        thread = threading.Thread(target=answer)
        thread.start()
        code = f"import socket; print(socket.create_connection(('127.0.0.1', {port})).recv(9))"
        assert session.run(["python", "-c", code], timeout_s=30).stdout == "b'answer'\n"
        thread.join()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        with pytest.raises(SandboxError, match="Address already in use"):
            session.listen(port)


def test_there_is_no_network(session: SandboxSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        done = session.run(["python", "-c", code], timeout_s=30)
        assert "ConnectionRefusedError" in done.stderr


def test_the_network_can_be_allowed(tmp_path: Path) -> None:
    with (
        open_session(tmp_path, network=True) as session,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert session.run(["python", "-c", code], timeout_s=30).succeeded


# --- files and snapshots -------------------------------------------------------------------------------------------


def test_files_are_written_and_read(session: SandboxSession) -> None:
    session.write_file("deep/er/data.bin", bytes(range(256)) * 5000, mode=0o755)
    assert session.read_file("/box/deep/er/data.bin", 1 << 21) == bytes(range(256)) * 5000
    assert session.read_file("deep/er/data.bin", 3) == b"\0\1\2"
    assert shell(session, "stat -c %a deep/er/data.bin") == "755\n"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        pytest.param("missing", "No such file or directory", id="missing"),
        pytest.param("/box", "not a regular file", id="a folder"),
        pytest.param("/etc/shadow", "No such file|Permission denied", id="outside"),
        pytest.param("x" * 300, "File name too long", id="long name"),
    ],
)
def test_unreadable_files_are_errors(session: SandboxSession, path: str, problem: str) -> None:
    with pytest.raises(WorkspaceError, match=problem):
        session.read_file(path)


def test_a_snapshot_restores_every_kind_of_file(clear: SandboxSession) -> None:
    shell(
        clear,
        "mkdir -p d/e; echo text > d/f; ln d/f hard; ln -s d/f soft; ln -s /etc/passwd out; mkfifo pipe; chmod 750 d/e;"
        "printf x > $'new\\nline'; printf y > $'\\xff'; echo secret > closed; chmod 000 closed; touch -d @1000 d/f",
    )
    first = clear.snapshot()
    before = shell(clear, "find . -printf '%P %y %m %n %l %T@\\n' | grep -v '^ ' | sort | sed 's/ [^ ]*$//'")
    shell(clear, "rm -rf d hard; echo more >> soft; chmod 600 closed")
    assert clear.snapshot() != first
    clear.restore(first)
    after = shell(clear, "find . -printf '%P %y %m %n %l %T@\\n' | grep -v '^ ' | sort | sed 's/ [^ ]*$//'")
    assert after == before
    assert clear.snapshot() == first
    assert shell(clear, "stat -c %Y d/f; cat hard; stat -c %a closed; chmod 600 closed; cat closed") == (
        "1000\ntext\n0\nsecret\n"
    )


def test_a_snapshot_reads_only_what_changed(clear: SandboxSession, monkeypatch: pytest.MonkeyPatch) -> None:
    shell(clear, "for i in $(seq 50); do echo $i > $i; done; sleep 0.1")
    clear.snapshot()
    read: list[str] = []
    original = SandboxSession._read_many

    def read_many(session: SandboxSession, paths: list[str]) -> list[bytes]:
        read.extend(paths)
        return original(session, paths)

    monkeypatch.setattr(SandboxSession, "_read_many", read_many)
    first = clear.snapshot()
    assert read == []
    shell(clear, "echo new > 7; touch -r 8 7")
    second = clear.snapshot()
    assert read == ["7"]
    assert clear.diff(first, second) == "--- a/7\n+++ b/7\n@@ -1 +1 @@\n-7\n+new\n"


def test_a_session_starts_with_a_copy_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "task.txt").write_text("given")
    if os.geteuid() == 0:
        os.chown(folder / "task.txt", 12345, 12345)
        (folder / "task.txt").chmod(0o600)
    with open_session(tmp_path / "store", files=folder) as session:
        assert shell(session, "cat task.txt; echo changed > task.txt") == "given"
    assert (folder / "task.txt").read_text() == "given"


def test_restoring_an_unknown_snapshot_changes_nothing(session: SandboxSession) -> None:
    session.write_file("stays", b"1")
    with pytest.raises(SnapshotError, match="there is no snapshot"):
        session.restore("0" * 32)
    assert session.read_file("stays") == b"1"


# --- hostile content -----------------------------------------------------------------------------------------------


def test_links_and_device_files_lead_nowhere(session: SandboxSession, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    shell(session, f"mkdir -p links; ln -sfn {tmp_path} links/folder; ln -sf {secret} links/file")
    with pytest.raises(WorkspaceError, match=r"No such file|Permission denied"):
        session.read_file("links/file")
    with pytest.raises(WorkspaceError, match=r"No such file|Permission denied|Read-only|File exists"):
        session.write_file("links/folder/secret", b"overwritten")
    assert secret.read_text() == "host"
    session.snapshot()
    done = session.run(
        ["bash", "-c", "mknod disk b 253 0 || mknod null c 1 3 || mknod white c 0 0 && cat white"]
    )
    assert done.exit_code != 0


def test_file_operations_do_not_wait_for_fifos(session: SandboxSession) -> None:
    shell(session, "mkfifo waits")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        session.read_file("waits")
    with pytest.raises(WorkspaceError, match=r"No such device or address|not a regular file"):
        session.write_file("waits", b"x")
    session.snapshot()


def test_too_many_files_are_refused(clear: SandboxSession) -> None:
    code = "for number in range(1_000_000): open(str(number), 'w').close()"
    done = clear.run(["python", "-c", code], timeout_s=60)
    assert done.exit_reason == "files" or "No space left on device" in done.stderr
    if clear.sandbox == "bubblewrap":  # it does not limit the number of files; the session does
        with pytest.raises(WorkspaceError, match=r"too many files|more than 2000 files"):
            clear.snapshot()
    else:
        assert 1900 < len(clear.store.read_snapshot(clear.snapshot())) <= 2000


def test_too_many_bytes_are_refused(tmp_path: Path) -> None:
    with open_session(tmp_path, limits=ResourceLimits(file_bytes=1 << 20)) as session:
        done = session.run(["bash", "-c", "for i in 1 2 3; do head -c 900000 /dev/zero > $i; done"])
        assert "No space left on device" in done.stderr
        with pytest.raises(WorkspaceError, match="No space left on device"):
            session.write_file("more", bytes(1 << 20))
        shell(session, "rm 1 2 3; for i in $(seq 20); do truncate -s 1000000 hole$i; done")
        with pytest.raises(WorkspaceError, match="too large for a snapshot"):
            session.snapshot()


def test_files_with_holes_are_restored_into_a_workspace_that_is_smaller(tmp_path: Path) -> None:
    with open_session(tmp_path, limits=ResourceLimits(file_bytes=2_000_000)) as session:
        shell(session, "for i in 1 2 3; do truncate -s 1500001 $i; done; echo end >> 1; cp /bin/true dense")
        before, sums = session.snapshot(), shell(session, "cksum *")
        session.restore(before)
        assert shell(session, "cksum *") == sums and session.snapshot() == before


def test_a_fork_bomb_is_limited_and_ends_with_its_command(session: SandboxSession) -> None:
    code = (
        "import os, signal\n"
        "count = 0\n"
        "try:\n"
        "    for _ in range(1000):\n"
        "        if os.fork() == 0: os.setsid(); signal.pause()\n"
        "        count += 1\n"
        "except OSError: print(count, flush=True)\n"
    )
    done = session.run(["python", "-c", code], timeout_s=60)
    assert done.exit_reason == "processes" or int(done.stdout) <= 64
    assert shell(session, "ls -d /proc/[0-9]* | wc -l").strip() in {"2", "3", "4"}


def test_deep_folders_are_a_named_error(clear: SandboxSession) -> None:
    code = "import os\nfor _ in range(300): os.mkdir('d' * 50); os.chdir('d' * 50)"
    assert clear.run(["python", "-c", code], timeout_s=60).succeeded
    with pytest.raises(WorkspaceError, match="File name too long"):
        clear.snapshot()


def test_a_command_cannot_reach_the_processes_of_the_session(session: SandboxSession) -> None:
    session.run(["bash", "-c", "kill -9 1; kill -9 -1"])
    assert shell(session, "echo alive") == "alive\n"


class AttackedSession:
    """A session as a sandbox for the attacks."""

    name = "session"

    def __init__(self, session: SandboxSession) -> None:
        self._session = session

    async def inspect(self) -> IsolationReport:
        return IsolationReport(sandbox=self.name)

    async def execute(self, program: Program) -> Execution:
        done = self._session.run(["python", "-I", "-"], program.source.encode(), program.limits.time_s)
        assert done.exit_reason not in ("files", "stopped")
        reason = cast(ExitReason, done.exit_reason)
        return Execution(exit_reason=reason, stdout=done.stdout, stderr=done.stderr)


def test_attacks_do_not_escape(session: SandboxSession) -> None:
    """A few of them, as in `test_escapes.py`."""
    names = ("unshare user", "clone into a user namespace", "mount tmpfs", "memfd", "socket vsock",
             "ptrace the launcher", "write the launcher's memory", "priority of the user")  # fmt: skip
    escaped, endings = asyncio.run(run_attacks(AttackedSession(session), names, at_once=1))
    assert escaped == [] and endings.total() == len(names)


def test_commands_get_no_descriptors_and_no_secrets(
    session: SandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert shell(session, "ls /proc/self/fd").split() == ["0", "1", "2", "3"]  # the last one is of `ls`
    assert "secret" not in shell(session, "env")
    assert not session.run(["cat", "/proc/1/environ"]).succeeded


def test_no_process_and_no_folder_are_left(tmp_path: Path) -> None:
    before = {path.name for path in Path("/tmp").iterdir()}
    session = open_session(tmp_path)
    assert session._process is not None
    number = session._process.pid
    with session.start(["sleep", "600"]):
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        assert children
        session.close()
    for pid in (number, *children):
        assert not Path(f"/proc/{pid}").exists()
    assert {
        name for name in {path.name for path in Path("/tmp").iterdir()} - before if "assay" in name
    } == set()
    with pytest.raises(SandboxError, match="session is closed"):
        session.run(["true"])
    session.close()


def test_a_copy_of_the_socket_does_not_keep_a_closed_session_alive(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    assert session._channel is not None and session._process is not None
    process = session._process
    with session._channel.dup():
        session.close()
        assert process.returncode == 0  # the server exited by itself and was not killed after a wait


KILLED = """
import os, signal, sys
from pathlib import Path
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore
session = SandboxSession(SnapshotStore(Path(sys.argv[1]))).open()
session.write_file("a", b"before")
print(session.snapshot(), session._process.pid, flush=True)
session.write_file("a", b"after")
session.start(["sleep", "600"])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_snapshots_survive_a_killed_process_and_its_session_does_not(tmp_path: Path) -> None:
    open_session(tmp_path).close()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    name, number = done.stdout.split()
    with open_session(tmp_path) as session:
        session.restore(name)
        assert session.read_file("a") == b"before"
    for _ in range(600):
        if not Path(f"/proc/{number}").exists():
            break
        threading.Event().wait(0.05)
    else:
        pytest.fail("the session outlives its process")


OTHER_USER = """
import sys
from pathlib import Path
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore
for sandbox in sys.argv[2:]:
    with SandboxSession(SnapshotStore(Path(sys.argv[1])), sandbox=sandbox) as session:
        session.write_file("a", b"1")
        name = session.snapshot()
        assert session.run(["sh", "-c", "echo 2 > a; id -u"]).stdout == "65534\\n"
        session.restore(name)
        assert session.read_file("a") == b"1"
        print(sandbox, session.run(["cat", "/etc/shadow"]).exit_code)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can enter. Every pytest that starts makes the folders of pytest private again."""
    with tempfile.TemporaryDirectory(prefix="assay-sessions-") as name:
        for folder in [Path(name), *Path(name).parents][:-2]:
            folder.chmod(folder.stat().st_mode | 0o055)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run without root")
def test_sessions_need_no_root(public_folder: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no interpreter that other users can run")
    source = public_folder / "src"
    for package in ("core", "sandboxes"):
        shutil.copytree(
            Path(__file__).parents[2] / "src" / "assay" / package,
            source / "assay" / package,
            ignore=shutil.ignore_patterns("__pycache__"),  # other processes of the tests write there
        )
    (source / "assay" / "__init__.py").touch()
    store = public_folder / "store"
    store.mkdir()
    os.chown(store, 12345, 12345)
    boxes = ["namespaces", *(["bubblewrap"] if shutil.which("bwrap") else [])]
    done = subprocess.run(
        [python, "-c", OTHER_USER, str(store), *boxes],
        capture_output=True,
        text=True,
        check=False,
        user=12345,
        group=12345,
        extra_groups=[],
        env={"PYTHONPATH": str(source), "PATH": os.defpath},
    )
    if "user namespaces" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.stdout.splitlines() == [f"{box} 1" for box in boxes], done.stderr


@pytest.mark.parametrize("name", ["docker", "nonsense"])
def test_other_sandboxes_have_no_sessions(tmp_path: Path, name: str) -> None:
    with pytest.raises(SandboxError, match=f"`{name}` has no sessions"):
        SandboxSession(SnapshotStore(tmp_path), sandbox=name).open()
