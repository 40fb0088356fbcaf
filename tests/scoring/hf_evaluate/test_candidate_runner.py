"""Tests of the runner of candidates: honest programs keep their verdicts, and cheats do not pass."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.scoring.hf_evaluate.verdict_cheats import CHEATS, REMAINING_CHEATS
from tests.working_sandbox import working_sandbox

from assay.core.program_executor import use_executor
from assay.core.records.programs import Execution, Program, SandboxError
from assay.sandboxes.program_runner import allow_programs
from assay.scoring.hf_evaluate import candidate_runner
from assay.scoring.hf_evaluate.candidate_protocol import choose_protocol
from assay.scoring.hf_evaluate.code_eval import run_candidates

HONEST: dict[str, tuple[str, str]] = {
    "numbers": (
        "def f(x): return x * 2",
        "assert f(2) == 4 and f(1.5) == 3.0 and f(1j) == 2j and f(True) == 2\n"
        "assert f(10**5000) == 2 * 10**5000 and f(-0.0).hex() == '-0x0.0p+0'\nassert str(f(float('nan'))) == 'nan'\n"
        "assert type(f(2)) is int and f(2) is not None",
    ),
    "containers keep their types": (
        "def f(x): return x",
        "for value in ([1, [2]], (1, (2,)), {1: {2: 3}}, {1, 2}, frozenset({1}), b'x', bytearray(b'x'), 'ü', range(3),\n"
        "              None, slice(1, 2), ..., {(1, 'a'): [None]}):\n"
        "    assert f(value) == value and type(f(value)) is type(value)",
    ),
    "collections": (
        "from collections import *\nfrom fractions import Fraction\nfrom decimal import Decimal\nimport datetime\n"
        "Point = namedtuple('Point', 'x y')\ndef f(kind):\n    return {'counter': Counter('aab'), 'ordered': OrderedDict(a=1),\n"
        "        'default': defaultdict(int, a=1), 'deque': deque([1, 2], 5), 'point': Point(1, 2), 'keys': {'b': 1, 'a': 2}.keys(),\n"
        "        'fraction': Fraction(1, 3), 'decimal': Decimal('1.10'), 'date': datetime.date(2020, 2, 29),\n"
        "        'items': {'a': [1]}.items(), 'values': {'a': 1}.values()}[kind]",
        "from collections import Counter, OrderedDict, deque\nfrom fractions import Fraction\nfrom decimal import Decimal\nimport datetime\n"
        "assert f('counter') == Counter('baa') and f('counter')['z'] == 0\nassert f('ordered') == OrderedDict(a=1)\n"
        "assert f('default') == {'a': 1}\nassert f('deque') == deque([1, 2]) and f('deque').maxlen == 5\n"
        "assert f('point') == (1, 2) and f('point').x == 1\nassert list(f('keys')) == ['b', 'a'] and f('keys') == {'a', 'b'}\n"
        "assert f('fraction') == Fraction(1, 3) and str(f('decimal')) == '1.10'\n"
        "assert f('date') == datetime.date(2020, 2, 29)\nassert list(f('items')) == [('a', [1])] and list(f('values')) == [1]",
    ),
    "arguments are changed": (
        "def f(x, d, s):\n    x.sort()\n    x[0].append(9)\n    d['new'] = x\n    s.discard(1)\n    return x",
        "inner = [1]\nvalues, names, marks = [[2], inner], {}, {1, 2}\nresult = f(values, names, marks)\n"
        "assert values == [[1, 9], [2]] and values[0] is inner and result is values\n"
        "assert names['new'] is values and marks == {2}",
    ),
    "exceptions": (
        "class Mine(ValueError): pass\ndef f(x):\n    if x: raise Mine('own', x)\n    return {}['key']",
        "try:\n    f(3)\n    assert False, 'no exception'\nexcept Mine as error:\n    assert error.args == ('own', 3)\n"
        "try:\n    f(3)\nexcept ValueError as error:\n    assert isinstance(error, Mine)\n"
        "try:\n    f(0)\nexcept KeyError as error:\n    assert str(error) == \"'key'\"",
    ),
    "functions as arguments": (
        "def f(function, values): return [function(value) for value in values]\ndef twice(g): return lambda x: g(g(x))",
        "calls = []\nassert f(lambda value: calls.append(value) or value + 1, [1, 2]) == [2, 3] and calls == [1, 2]\n"
        "assert twice(lambda x: x * 3)(2) == 18\nassert sorted([3, 1], key=twice(lambda x: -x)) == [1, 3]",
    ),
    "generators": (
        "def f(n):\n    for i in range(n): yield [i]\ndef total(values): return sum(values)",
        "assert list(f(3)) == [[0], [1], [2]] and next(f(1)) == [0]\n"
        "assert [value for value in zip(f(2), f(2))] == [([0], [0]), ([1], [1])]\nassert total(x * x for x in range(4)) == 14",
    ),
    "objects": (
        "class Stack:\n    size = 0\n    def __init__(self, *values): self.values = list(values)\n"
        "    def push(self, value): self.values.append(value)\n    def pop(self): return self.values.pop()\n"
        "    def __len__(self): return len(self.values)\n    def __getitem__(self, at): return self.values[at]\n"
        "    def __eq__(self, other): return self.values == getattr(other, 'values', other)\n"
        "    def __add__(self, other): return Stack(*self.values, *other.values)\n    def __repr__(self): return 'Stack'",
        "stack = Stack(1)\nstack.push(2)\nassert len(stack) == 2 and stack[0] == 1 and stack.values == [1, 2]\n"
        "assert stack == [1, 2] and stack == Stack(1, 2) and stack != Stack(3)\nassert repr(stack) == 'Stack'\n"
        "assert (stack + Stack(5)).pop() == 5 and isinstance(stack, Stack) and not isinstance(3, Stack)\nassert list(stack) == [1, 2]",
    ),
    "a name of a built-in function": ("def sum(a, b): return a * b", "assert sum(3, 4) == 12"),
    "modules of the candidate": (
        "import math\nimport re as regex\ndef f(x): return math.sqrt(x)",
        "assert math.isclose(f(2) ** 2, 2)",
    ),
    "state stays between calls": (
        "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)",
        "assert [f(1), f(1), f(1)] == [1, 2, 3]",
    ),
    "recursion": ("def f(n): return 1 if n == 0 else n * f(n - 1)", "assert f(500) % 1000 == 0"),
    "numeric subclasses": (
        "import enum\nclass Size(enum.IntEnum):\n    SMALL = 1\ndef f(): return Size.SMALL",
        "assert f() == 1 and f() + 1 == 2",
    ),
}  # fmt: skip
WRONG: dict[str, tuple[str, str, str]] = {
    "wrong value": ("def f(x): return x", "assert f(1) == 2, 'not two'", "failed: not two"),
    "wrong type": ("def f(x): return [x]", "assert f(1) == (1,)", "failed: "),
    "missing name": ("def g(x): return x", "assert f(1) == 1", "failed: name 'f' is not defined"),
    "syntax error": ("def f(: pass", "assert f(1)", "failed: "),
    "open block": ("def f(x):", "assert f(1)", "failed: "),
    "exception": ("def f(x): return 1 / x", "assert f(0) == 1", "failed: division by zero"),
    "too many arguments": (
        "def f(): pass",
        "assert f(1)",
        "failed: f() takes 0 positional arguments but 1 was given",
    ),
    "not callable": ("f = 3", "assert f(1)", "failed: 'int' object is not callable"),
    "endless": ("def f(x):\n    while True: pass", "assert f(1)", "timed out"),
    "endless test": ("def f(x): pass", "while True: pass", "timed out"),
}


@contextmanager
def allow_any_sandbox() -> Iterator[None]:
    chosen = working_sandbox()
    with allow_programs(chosen["sandbox"], i_know=True, **chosen["sandbox_args"]):
        yield


def check(
    candidate: str,
    tests: str,
    *,
    mode: str | None = None,
    seconds: float = 10.0,
    waited_s: float | None = None,
    computed_s: float = 0.0,
) -> str:
    """Run the runner without a sandbox; `mode="in_process"` is what lm_eval does."""
    job: dict[str, Any] = {"word": "word", "candidate": candidate, "tests": tests}
    job |= {"seconds": seconds, "max_added_seconds": 10.0}
    source = Path(candidate_runner.__file__).read_text("utf-8")
    if waited_s is not None:  # as if the process had waited for a processor, and used one, for so long
        job["max_added_seconds"] = 1.0
        times = f"read_waiting_time = lambda _: {waited_s}\nread_processor_time = lambda _: {computed_s}"
        source = source.replace('if __name__ == "__main__"', f"{times}\nif True")
    job |= choose_protocol(tests).to_json()
    if mode == "in_process":
        job |= {"mode": mode, "separate": False}
    done = subprocess.run(
        [sys.executable, "-I", "-c", source],
        input=json.dumps(job).encode(),
        capture_output=True,
        check=False,
    )
    return done.stdout.decode().removeprefix("word ")


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass_in_one_process_and_in_two(name: str) -> None:
    candidate, tests = HONEST[name]
    assert choose_protocol(tests).mode != "in_process"
    assert check(candidate, tests) == "passed"
    assert check(candidate, tests, mode="in_process") == "passed"


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_fail_in_one_process_and_in_two(name: str) -> None:
    candidate, tests, verdict = WRONG[name]
    assert check(candidate, tests, seconds=0.5).startswith(verdict)
    assert check(candidate, tests, mode="in_process", seconds=0.5).startswith(verdict)


def test_a_program_that_waited_too_long_for_a_processor_has_no_verdict() -> None:
    slow = "import time\ntime.sleep(60)"
    assert check(slow, "", seconds=1.0, waited_s=3.0) == "busy: waited 6 s for a processor"
    assert check(slow, "", seconds=1.0, waited_s=3.0, computed_s=1.0) == "timed out", "it has used its time"
    assert check(slow, "", seconds=0.5, waited_s=0.0) == "timed out"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_the_processor_time_of_a_process_is_what_it_computed() -> None:
    computing = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
    try:
        while candidate_runner.read_processor_time(computing.pid) < 0.2:
            assert computing.poll() is None
    finally:
        computing.kill()
        computing.wait()


class BusyMachine:
    """Executes programs with these results, and records their time limits. `{}` stands for the secret word."""

    def __init__(self, *results: str) -> None:
        self.results = list(results)
        self.limits_s: list[float] = []

    def execute_programs(self, programs: Sequence[Program]) -> list[Execution]:
        return [self.execute(program) for program in programs]

    def execute(self, program: Program) -> Execution:
        self.limits_s.append(program.limits.time_s)
        word = json.loads(program.stdin)["word"]
        result = self.results.pop(0)
        return Execution(exit_reason="exited" if result else "time", stdout=result.format(word))


@pytest.mark.parametrize("first", ["{} busy: waited 12 s for a processor", ""], ids=["waited", "killed"])
def test_a_program_on_a_busy_machine_runs_again_alone_with_more_time(first: str) -> None:
    machine = BusyMachine("{} passed", first, "{} failed: no", "{} passed")
    with use_executor(machine):
        assert run_candidates(["a = 1", "b = 1", "c = 1"]) == ["passed", "passed", "failed: no"]
    assert machine.limits_s[3] > 3 * machine.limits_s[1]


def test_a_program_that_a_busy_machine_cannot_run_has_no_score() -> None:
    busy = "{} busy: waited 60 s for a processor"
    with use_executor(BusyMachine(busy, busy)), pytest.raises(SandboxError, match="waited 60 s for a proc"):
        run_candidates(["a = 1"])
    with use_executor(BusyMachine("", "")):  # it stopped its timer
        assert run_candidates(["a = 1"]) == ["timed out"]


def test_an_endless_candidate_ends_with_its_checker(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    candidate = (
        f"import os\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ndef f(x):\n    while True: pass"
    )
    assert check(candidate, "assert f(1)", seconds=0.5) == "timed out"
    process = Path("/proc", marker.read_text("utf-8"), "stat")

    def is_running() -> bool:
        try:
            return process.read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + 60
    while is_running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running()


def test_arrays_are_data() -> None:
    pytest.importorskip("numpy")
    candidate = "import numpy as np\ndef f(x): return np.asarray(x) * 2\ndef g(x): return np.float32(x)"
    tests = (
        "import numpy\nfound = f([[1, 2], [3, 4]])\nassert found.shape == (2, 2) and found.dtype.kind == 'i'\n"
        "assert numpy.array_equal(found, numpy.array([[2, 4], [6, 8]])) and np.allclose(found, [[2, 4], [6, 8]])\n"
        "assert type(g(0.5)) is numpy.float32 and g(0.5) == 0.5\nassert (f(numpy.ones(3)) == 2).all()"
    )
    assert choose_protocol(tests).mode == "function_level"
    assert check(candidate, tests) == "passed"


def test_many_calls_extend_the_time_limit() -> None:
    tests = "for at in range(4000):\n    assert f(at) == at + 1"
    assert check("def f(x): return x + 1", tests, seconds=0.2) == "passed"


@cache
def run_cheats() -> dict[str, str]:
    """Run all cheats at once in a sandbox."""
    with allow_any_sandbox():
        return dict(zip(CHEATS, run_candidates([*CHEATS.values()], timeout_s=0.7), strict=True))


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_does_not_pass(name: str) -> None:
    assert run_cheats()[name] == "timed out" or run_cheats()[name].startswith("failed")


@pytest.mark.parametrize("name", REMAINING_CHEATS)
def test_tests_that_trust_the_program_are_passed_by_it(name: str) -> None:
    """What the guide says about the remaining cheats is true."""
    assert check(*REMAINING_CHEATS[name]) == "passed"
