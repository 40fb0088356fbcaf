"""`execute`: who may, how many at once, and what is left afterwards."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tests.working_sandbox import make_runner

from assay.core.errors import AssayError, UnknownName, UnsupportedRequest
from assay.core.options.run_spec import RunSpec
from assay.core.program_executor import execute_programs, use_executor
from assay.core.records.programs import Execution, IsolationReport, Program, ResourceLimits
from assay.sandboxes import SANDBOXES
from assay.sandboxes.program_runner import ProgramRunner, allow_programs, programs_for_run


class Counting:
    """A sandbox that says what it was given, and how much of it at once."""

    name = "counting"
    most = 0
    open = 0

    async def inspect(self) -> IsolationReport:
        return IsolationReport(sandbox=self.name, isolated=("everything",))

    async def execute(self, program: Program) -> Execution:
        kind = type(self)
        kind.open += 1
        kind.most = max(kind.most, kind.open)
        await asyncio.sleep(0.02)
        kind.open -= 1
        return Execution(exit_reason="exited", exit_code=0, stdout=program.source)


@pytest.fixture
def counting() -> type[Counting]:
    SANDBOXES.add("counting", Counting, replace=True)
    Counting.most = Counting.open = 0
    return Counting


def make_programs(count: int) -> list[Program]:
    return [Program(source=f"{number}") for number in range(count)]


def test_programs_run_several_at_once_and_come_back_in_order(counting: type[Counting]) -> None:
    programs = ProgramRunner("counting", max_concurrent=3)
    with use_executor(programs):
        done = execute_programs(make_programs(10))
    programs.close()
    assert [one.stdout for one in done] == [str(number) for number in range(10)]
    assert (counting.most, programs.executed) == (3, 10)


def test_an_event_loop_waits_for_a_program_too(counting: type[Counting]) -> None:
    programs = ProgramRunner("counting")
    assert asyncio.run(programs.execute(Program(source="x"))).stdout == "x"
    programs.close()
    assert asyncio.run(programs.execute(Program(source="y"))).stdout == "y", "closed is not for ever"
    programs.close()


def test_a_sandbox_is_looked_for_when_it_is_needed() -> None:
    programs = ProgramRunner("no-such-sandbox")
    assert programs.isolation is None
    with pytest.raises(UnknownName):
        programs.open()
    with pytest.raises(UnknownName):
        programs.execute_programs(make_programs(1))
    programs.close()


def test_what_a_run_does_not_allow_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ALLOW_CODE_EVAL", raising=False)
    with (
        programs_for_run(ProgramRunner(), RunSpec()),
        pytest.raises(UnsupportedRequest, match="does not allow"),
    ):
        execute_programs(make_programs(1))
    with pytest.raises(UnsupportedRequest, match="only be executed within a run"):
        execute_programs(make_programs(1))


@pytest.mark.parametrize(("flag", "variable"), [(True, ""), (False, "1")])
def test_a_flag_or_the_published_variable_allows_it(
    flag: bool, variable: str, counting: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", variable)
    with programs_for_run(ProgramRunner("counting"), RunSpec(confirm_run_unsafe_code=flag)):
        assert execute_programs(make_programs(1))[0].succeeded


def test_closing_ends_what_is_running() -> None:
    programs = make_runner()
    found: list[BaseException] = []

    def wait() -> None:
        try:
            programs.execute_programs(
                [Program(source="import time\ntime.sleep(60)", limits=ResourceLimits(time_s=60))]
            )
        except BaseException as error:  # noqa: BLE001 - looked at below
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until = time.monotonic() + 10
    while programs.isolation is None and time.monotonic() < until:
        time.sleep(0.01)
    programs.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(found) == 1 and not isinstance(found[0], AssayError)


def test_helper_code_of_one_run_executes_nothing_in_the_sandbox_of_another(counting: type[Counting]) -> None:
    other, refuses = threading.Event(), ProgramRunner("counting")
    refuses.allowed = False
    over = threading.Event()

    def another_run() -> None:
        with use_executor(refuses):
            other.set()
            over.wait(20)

    async def one_run() -> list[Execution]:
        with allow_programs("counting"):
            threading.Thread(target=another_run, daemon=True).start()
            await asyncio.to_thread(other.wait, 20)
            try:
                return await asyncio.to_thread(execute_programs, make_programs(2))
            finally:
                over.set()

    assert [done.succeeded for done in asyncio.run(one_run())] == [True, True]
