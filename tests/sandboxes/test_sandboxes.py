"""What every sandbox promises, what the launcher is told, and which one is chosen."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from tests.sandboxes.conftest import Box

import assay.sandboxes as sandboxes
from assay.core.errors import InvalidOption, UnknownName
from assay.core.ports import Sandbox
from assay.core.records.programs import Execution, IsolationReport, Program, ResourceLimits, SandboxError
from assay.sandboxes import SANDBOXES, STRONGEST_FIRST, choose_sandbox, make_sandbox

# --- a program runs ---------------------------------------------------------------------------------


def test_a_program_gets_its_files_its_input_and_an_otherwise_empty_folder(box: Box) -> None:
    source = "import os, sys\nprint(sorted(os.listdir()), sys.stdin.read(), open('data/a.txt').read())"
    files = {"data/a.txt": b"one"}
    done = box.execute(Program(source=source, files=files, stdin="zwei ü".encode()))
    assert done.stdout == "['data', 'program.py'] zwei ü one\n", done.stderr
    assert done.succeeded
    assert done.sandbox == box.sandbox.name


def test_a_command_is_run_with_its_arguments(box: Box) -> None:
    done = box.execute(Program(arguments=("python", "-c", "import sys; print(sys.argv)", "a b", "$HOME")))
    assert done.stdout == "['-c', 'a b', '$HOME']\n"


@pytest.mark.parametrize(
    ("source", "ending", "code"),
    [
        ("", "exited", 0),
        ("raise SystemExit(3)", "exited", 3),
        ("1 / 0", "exited", 1),
        ("import os\nos.abort()", "signal", None),
        ("x = b'x' * (1 << 40)", "memory", None),
    ],
)
def test_how_it_ended_is_told(box: Box, source: str, ending: str, code: int | None) -> None:
    done = box.run(source or "pass")
    assert (done.exit_reason, done.exit_code) == (ending, code), done


def test_a_command_that_is_not_there_is_not_the_programs_fault(box: Box) -> None:
    with pytest.raises(SandboxError, match="No such file"):
        box.execute(Program(arguments=("no-such-command",)))


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_a_file_outside_of_the_folder_is_refused(box: Box, name: str) -> None:
    with pytest.raises(SandboxError, match="outside the program's folder"):
        box.execute(Program(source="pass", files={name: b""}))


def test_many_run_at_once_and_leave_nothing_behind(box: Box) -> None:
    async def several() -> list[Execution]:
        source = "import os, time\ntime.sleep(0.2)\nprint({}, os.getcwd())"
        programs = [Program(source=source.format(number)) for number in range(6)]
        return await asyncio.gather(*map(box.sandbox.execute, programs))

    said = [done.stdout.split() for done in asyncio.run(several())]
    assert [number for number, _ in said] == [str(number) for number in range(6)]
    assert not [folder for _, folder in said if Path(folder).exists()]


def test_a_temporary_folder_that_is_ours_alone_does_not_keep_another_user_out(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    assert box.run("print('here')").stdout == "here\n"
    assert list((tmp_path / "own").iterdir()) == []


def test_what_is_claimed_was_tried(box: Box) -> None:
    assert box.isolation.sandbox == box.sandbox.name
    assert "network" in box.isolation.isolated
    assert {"time", "memory", "output", "the size of a file"} <= {*box.isolation.limited}
    if box.sandbox.name in ("bubblewrap", "namespaces"):
        assert box.isolation.not_isolated == ()
    else:
        assert "NOT BLOCKED: " in str(box.isolation)


# --- which one --------------------------------------------------------------------------------------


def test_the_built_in_ones_are_known_and_take_their_arguments() -> None:
    assert {*STRONGEST_FIRST, "docker", "limits"} <= {*SANDBOXES.names()}
    assert isinstance(make_sandbox("docker", {"image": "mine"}), Sandbox)
    with pytest.raises(InvalidOption, match="invalid arguments for the sandbox"):
        make_sandbox("limits", {"image": "mine"})
    with pytest.raises(
        UnknownName, match=r"no sandbox is called `bubblewarp`(.|\n)*`bubblewrap`.*ls sandboxes"
    ):
        make_sandbox("bubblewarp", {})


class Fails:
    """Does not work on any machine."""

    name = "fails"

    async def inspect(self) -> IsolationReport:
        raise SandboxError("not today")

    async def execute(self, program: Program) -> Execution:
        raise SandboxError("not today")


class Open:
    """Runs everything, and does not block the network."""

    name = "open"

    async def inspect(self) -> IsolationReport:
        return IsolationReport(sandbox=self.name, isolated=("mounts",), not_isolated=("network",))

    async def execute(self, program: Program) -> Execution:
        return Execution(exit_reason="exited", exit_code=0)


class Closed(Open):
    """Blocks everything."""

    name = "closed"

    async def inspect(self) -> IsolationReport:
        return IsolationReport(sandbox=self.name, isolated=("network",))


def test_the_strongest_that_works_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (Fails, Open, Closed):
        SANDBOXES.add(made.name, made, replace=True)
    monkeypatch.setattr(sandboxes, "STRONGEST_FIRST", ("fails", "open", "closed"))
    chosen, isolation = asyncio.run(choose_sandbox("auto", {}))
    assert (chosen.name, isolation.sandbox) == ("closed", "closed")
    with pytest.raises(InvalidOption, match="the sandbox `fails` does not work here: not today"):
        asyncio.run(choose_sandbox("fails", {}))
    monkeypatch.setattr(sandboxes, "STRONGEST_FIRST", ("fails", "open"))
    for i_know in (False, True):  # `auto` does not choose one that blocks less
        with pytest.raises(InvalidOption, match="no sandbox isolates programs on this machine"):
            asyncio.run(choose_sandbox("auto", {}, i_know=i_know))


def test_a_sandbox_that_does_not_block_everything_must_be_accepted() -> None:
    SANDBOXES.add("open", Open, replace=True)
    with pytest.raises(InvalidOption, match=r"does not block or limit: network(.|\n)*--i-know"):
        asyncio.run(choose_sandbox("open", {}))
    assert asyncio.run(choose_sandbox("open", {}, i_know=True))[0].name == "open"


def test_limits_is_never_chosen_by_auto() -> None:
    assert "limits" not in STRONGEST_FIRST
    assert {"bubblewrap", "namespaces"} == {*STRONGEST_FIRST}


# --- what is told -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ResourceLimits.__slots__)
def test_a_bound_of_nothing_is_a_mistake(field: str) -> None:
    with pytest.raises(InvalidOption, match=field):
        ResourceLimits(**{field: 0})
