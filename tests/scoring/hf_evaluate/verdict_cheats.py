"""Programs that try to pass tests which they do not solve. None of them may pass."""

from __future__ import annotations

__all__ = ["ADD_TESTS", "CHEATS", "REMAINING_CHEATS"]

ADD_TESTS = "assert add(2, 3) == 5\nassert add(10, -4) == 6\nassert abs(add(0.5, 0.25) - 0.75) < 1e-6"
CHECK_TESTS = "METADATA = {}\n\ndef check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(1, 1) == 2\n\ncheck(add)"
MATH_TESTS = "assert math.isclose(add(2, 3), 5)"

_WRONG = "def add(a, b): return 0\n"
_EQUAL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __bool__(self): return True
    def __hash__(self): return 0
"""
_FORGE = """
import json, os
def forge(*messages):
    for number in range(3, 40):
        for message in messages:
            text = json.dumps(message).encode()
            try: os.write(number, len(text).to_bytes(8, "little") + text)
            except OSError: pass
"""

CHEATS: dict[str, tuple[str, str]] = {
    "prints the verdict": ("print('passed')\nimport os\nos._exit(0)", ADD_TESTS),
    "exits with 0": ("raise SystemExit(0)", ADD_TESTS),
    "exits in a call": ("import os\ndef add(a, b): os._exit(0)", ADD_TESTS),
    "writes with the runner's own functions": (
        "import __main__, os\nfor name in ('word', 'job', 'out', 'write', 'end'):\n"
        "    value = getattr(__main__, name, None)\n    if value: print(value)\n"
        "for number in range(60):\n    try: os.write(number, b'passed')\n    except OSError: pass\n" + _WRONG,
        ADD_TESTS,
    ),
    "reads the frames": (
        "import sys\ndef add(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if isinstance(value, str) and 'assert' in value: return 5\n"
        "            if isinstance(value, dict) and 'word' in value: return 5\n        frame = frame.f_back\n    return 0",
        "assert add(2, 3) == 5",
    ),
    "searches the garbage collector": (
        "import gc\ndef add(a, b):\n    for value in gc.get_objects():\n"
        "        if isinstance(value, dict) and ('word' in value or 'tests' in value): return 5\n    return 0",
        "assert add(2, 3) == 5",
    ),
    "starts a thread that writes": (
        "import os, threading, time\ndef work():\n    for _ in range(200):\n        for number in range(3, 30):\n"
        "            try: os.write(number, b'passed')\n            except OSError: pass\n        time.sleep(0.001)\n"
        "threading.Thread(target=work, daemon=True).start()\n" + _WRONG,
        ADD_TESTS,
    ),
    "clears the timer": (
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0)\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "def add(a, b):\n    while True: pass",
        ADD_TESTS,
    ),
    "returns an object that equals everything": (_EQUAL + "def add(a, b): return Equal()", ADD_TESTS),
    "returns a number that equals everything": (
        "class Any(int):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "    __hash__ = int.__hash__\ndef add(a, b): return Any(0)",
        ADD_TESTS,
    ),
    "is a class whose instances equal everything": (
        _EQUAL + "class add(Equal):\n    def __init__(self, *a): pass",
        ADD_TESTS,
    ),
    "returns a list that equals everything": (
        "class Any(list):\n    def __eq__(self, other): return True\ndef add(a, b): return Any()",
        "assert add(2, 3) == [5]",
    ),
    "returns an object that is near everything": (
        _EQUAL + "def add(a, b): return Equal()",
        "assert abs(add(2, 3) - 5) < 1e-6",
    ),
    "claims another class": (
        _EQUAL.replace("class Equal:", "class Equal:\n    __class__ = int") + "def add(a, b): return Equal()",
        ADD_TESTS,
    ),
    "contains everything": (
        "class All:\n    def __contains__(self, value): return True\n    def __iter__(self): return iter(())\n"
        "def add(a, b): return All()",
        "assert 5 in add(2, 3)",
    ),
    "is equal from the right": (_EQUAL + "def add(a, b): return Equal()", "assert 5 == add(2, 3)"),
    "replaces built-in functions": (
        "import builtins\nbuiltins.abs = abs = lambda value: 0\nbuiltins.AssertionError = ValueError\n"
        + _WRONG,
        "assert abs(add(2, 3) - 5) < 1e-6",
    ),
    "replaces the tests' function": ("def check(candidate): pass\n" + _WRONG, CHECK_TESTS),
    "replaces a module of the tests": (
        "class math:\n    isclose = staticmethod(lambda *values: True)\n" + _WRONG,
        MATH_TESTS,
    ),
    "replaces a function of a module": (
        "import math\nmath.isclose = lambda *values: True\n" + _WRONG,
        MATH_TESTS,
    ),
    "plants a module": (
        "import math\nopen('math.py', 'w').write('isclose = lambda *values: True')\n"
        "open('json.py', 'w').write('')\n" + _WRONG,
        MATH_TESTS,
    ),
    "rewrites the runner": ("open('program.py', 'w').write('print(1)')\n" + _WRONG, ADD_TESTS),
    "reads standard input": (
        "import os\ntext = ''\nfor path in ('/dev/stdin', '/proc/self/fd/0', '.stdin'):\n"
        "    try: text += open(path).read()\n    except OSError: pass\n"
        "def add(a, b): return 5 if 'assert' in text else 0",
        "assert add(2, 3) == 5",
    ),
    "reads the memory of the tests": (
        "import os\nfound = []\nfor name in ('mem', 'environ', 'maps', 'fd/0', 'fd/1'):\n"
        "    try: found.append(open('/proc/%d/%s' % (os.getppid(), name), 'rb'))\n    except OSError: pass\n"
        "def add(a, b): return 5 if found else 0",
        "assert add(2, 3) == 5",
    ),
    "lists the descriptors of the tests": (
        "import os\ntry: found = os.listdir('/proc/%d/fd' % os.getppid())\nexcept OSError: found = []\n"
        "def add(a, b): return 5 if found else 0",
        "assert add(2, 3) == 5",
    ),
    "attaches to the process of the tests": (
        "import ctypes, os\nlibrary = ctypes.CDLL(None)\ntaken = library.ptrace(16, os.getppid(), 0, 0) == 0\n"
        "def add(a, b): return 5 if taken else 0",
        "assert add(2, 3) == 5",
    ),
    "kills the process of the tests": (
        "import ctypes, os\nctypes.CDLL(None).kill(os.getppid(), 9)\n" + _WRONG,
        ADD_TESTS,
    ),
    "ends the timer of the tests": (
        "import ctypes, os\nctypes.CDLL(None).kill(os.getppid(), 14)\n" + _WRONG,
        ADD_TESTS,
    ),
    "forges replies": (
        _FORGE + "forge(['value', [[5], []]], ['passed'], ['value', [['passed'], []]])\n" + _WRONG,
        ADD_TESTS,
    ),
    "forges an exception": (
        _FORGE + "forge(['raise', [[['exception', 'SystemExit', 'SystemExit', None, [0]]], []]])\n" + _WRONG,
        ADD_TESTS,
    ),
    "asks for objects of the tests": (
        _FORGE + "def add(a, b):\n    forge(['request', [['getattr', 0, '__globals__'], []]])\n    return 0",
        ADD_TESTS,
    ),
    "replaces the protocol": (
        "import __main__\nencode = __main__.Peer.encode\ndef forged(self, values, objects=None):\n"
        "    if values and isinstance(values[0], dict):\n"
        "        values = [{**values[0], 'abs': lambda value: 0, '__builtins__': {}, 'AssertionError': ValueError}]\n"
        "    return encode(self, values, objects)\n__main__.Peer.encode = forged\n" + _WRONG,
        "assert abs(add(2, 3) - 5) < 1e-6",
    ),
    "traces the tests": (
        "import sys\ndef trace(frame, event, argument): frame.f_trace_opcodes = True; return trace\n"
        "sys.settrace(trace)\nsys.setprofile(lambda *a: None)\n" + _WRONG,
        ADD_TESTS,
    ),
    "replaces exec and compile": (
        "import builtins\nbuiltins.exec = lambda *a: None\nbuiltins.compile = lambda *a, **k: None\n"
        + _WRONG,
        ADD_TESTS,
    ),
    "registers an exit function": (
        "import atexit, os\natexit.register(lambda: os.write(1, b'passed'))\n" + _WRONG,
        ADD_TESTS,
    ),
    "looks at a function of the tests": (
        "def apply(function):\n    try: names = function.__globals__\n    except AttributeError: return 0\n    return 5",
        "secret = 5\nassert apply(lambda value: value) == secret",
    ),
    "looks at the frame of a generator": (
        "def apply(values):\n    try: return values.gi_frame.f_globals['secret']\n    except AttributeError: return 0",
        "secret = 5\nassert apply(value for value in [1]) == secret",
    ),
    "sends a value that is too large": ("def add(a, b): return '5' * (200 << 20)", ADD_TESTS),
    "sends a value that is too deep": (
        "def add(a, b):\n    value = []\n    for _ in range(200000): value = (value,)\n    return value",
        ADD_TESTS,
    ),
    "swallows the tests": (_WRONG + "'''", "'''Tests.'''\n" + ADD_TESTS),
    "raises the wrong exception": ("def add(a, b): raise StopIteration(5)", ADD_TESTS),
    "forks and exits": (
        "import ctypes\nif ctypes.CDLL(None).fork() == 0:\n    print('passed')\n" + _WRONG,
        ADD_TESTS,
    ),
}
"""Program and tests by what the program tries."""

REMAINING_CHEATS: dict[str, tuple[str, str]] = {
    "an object that equals everything, in one process with the tests": (
        _EQUAL + "def add(a, b): return Equal()",
        "class Case: pass\nassert add(2, 3) == 5",
    ),
    "an object that compares itself, where the tests use a class of the program": (
        _EQUAL + "class Number(Equal):\n    def __init__(self, *a): self.sign = 1",
        "number = Number(5)\nassert number.sign == 1\nassert number == 5",
    ),
    "a helper of the program that the tests call": (
        "def poly(*values): return 0\ndef find_zero(values): return 1.0",
        "assert abs(poly([1, 2], find_zero([1, 2]))) < 1e-4",
    ),
}
"""Cheats that pass, because the tests themselves trust the program. The guide names them."""
