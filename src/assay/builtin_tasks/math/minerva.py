"""MATH as Minerva is measured: the announced answer in a normal form, and whether it equals the right one symbolically.

The normal form is the one of Lewkowycz et al. (arXiv:2206.14858, appendix D.1), with the repairs of lm-evaluation-harness
0.4.13: units are taken out as words, commands of LaTeX stay whole, only true thousands lose their commas.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import FrameType
from typing import Any

from assay.builtin_tasks.math.boxed import boxed_answer
from assay.core.installation import format_install_command

try:
    import antlr4  # noqa: F401 - SymPy needs it to read LaTeX, and would say so only when it reads
    import math_verify
    import sympy
    from sympy.parsing.latex import parse_latex
except ModuleNotFoundError as error:  # the names of packages are not those of their modules
    raise ModuleNotFoundError(f"`{error.name}`: {format_install_command('math')}") from None
_ANTLR = version("antlr4-python3-runtime")
if not _ANTLR.startswith("4.11"):  # SymPy reads LaTeX with this one only, and would refuse every answer
    raise ModuleNotFoundError(f"antlr4-python3-runtime 4.11, not {_ANTLR}: {format_install_command('math')}")

NO_ANSWER = "[invalidanswer]"
_TIME_LIMIT_S = 5
_ANNOUNCED = re.compile("Final Answer: The final answer is(.*?). I hope it is correct.")


def with_answers(documents: Any) -> Any:
    """Every document with `answer`, the normal form of what its solution has in the box."""
    return documents.map(
        lambda document: {
            "problem": document["problem"],
            "solution": document["solution"],
            "answer": normal_form(boxed_answer(document["solution"])),
        }
    )


def process_results(document: dict[str, Any], results: list[str]) -> dict[str, int]:
    """The answer that was announced, and any answer that `math_verify` finds."""
    response = results[0]
    verified = math_verify.verify(
        gold=math_verify.parse(document["solution"]), target=math_verify.parse(response)
    )
    return {
        "exact_match": int(is_equal(normal_form(announced_answer(response)), document["answer"])),
        "math_verify": int(verified),
    }


def announced_answer(response: str) -> str:
    """What comes after the words the worked problems end with; a response that was cut off there counts as well.

    >>> announced_answer("So. Final Answer: The final answer is $12$. I hope it is correct."), announced_answer("12")
    ('$12$', '[invalidanswer]')
    """
    found = _ANNOUNCED.search(f"{response}I hope it is correct.")
    return found[1].strip() if found else NO_ANSWER


# --- normal form ----------------------------------------------------------------------------------------

_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text"),
    (",\\text{and}", ","), ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
_UNITS = (
    "square ways integers dollars mph inches ft hours km units sue points feet minutes digits cents degrees cm gm pounds "
    "meters meals edges students childrentickets multiples"
).split()
_SIGNS = (
    "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}", "\\mathrm{th}", "^\\circ",
    "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots",
)  # fmt: skip
_DROPPED = (*_UNITS[:10], "\\ldots", *_UNITS[10:], *_SIGNS)
"""In the order of the paper, which matters where one holds another."""

_COMMAND = re.compile(r"(\\[a-zA-Z]+)")
_UNWRAPPED = (
    (re.compile(r"(.*?)(\$)(.*?)(\$)(.*)"), r"$\3$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt(\[[^\]]*\])(\w)"), r"sqrt\1{\2}"),
    (re.compile(r"sqrt(?!\[)([^{])"), r"sqrt{\1}"),
)
"""Out of formulas, text and boxes; then short forms of fractions and roots in full."""

_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+")


def normal_form(answer: str) -> str:
    r"""An answer without what is written around it: what it equals, units, formula signs, commas of thousands.

    >>> normal_form(r"x = $\frac12$ cm"), normal_form("10,000 dollars"), normal_form(r"$\left(0,1\right)$")
    ('\\frac{1}{2}', '10000', '\\left(0,1\\right)')
    """
    answer = answer.rpartition("=")[2]
    for unit in _UNITS:
        answer = re.sub(rf"(?<!\\)\b{unit}\b", "", answer)
    for written, meant in _REPLACED:
        answer = answer.replace(written, meant)
    for dropped in _DROPPED:
        answer = _outside_commands(answer, dropped) if dropped.isalpha() else answer.replace(dropped, "")
    for pattern, kept in _UNWRAPPED:
        answer = pattern.sub(kept, answer)
    answer = answer.replace("$", "")
    return answer.replace(",", "") if _THOUSANDS.fullmatch(answer) else answer


def _outside_commands(text: str, word: str) -> str:
    r"""`ft` goes, but not from `\left`."""
    pieces = _COMMAND.split(text)  # every second one is a command
    return "".join(piece if at % 2 else piece.replace(word, "") for at, piece in enumerate(pieces))


# --- equality --------------------------------------------------------------------------------------------


def is_equal(one: str, other: str) -> bool:
    r"""The same text, or two expressions whose difference SymPy simplifies to nothing within five seconds.

    >>> is_equal(r"\frac{1}{2}", "0.5"), is_equal("2x", "x+x"), is_equal("(1,2)", "(1,2)"), is_equal("7", "8")
    (True, True, True, False)
    """
    if one and one == other:
        return True
    try:
        with _time_limit():
            return bool(sympy.simplify(parse_latex(one) - parse_latex(other)) == 0)
    except ImportError:
        raise
    except Exception:  # noqa: BLE001 - what a model wrote is seldom LaTeX, and the parser has many ways to say so
        return False


@contextmanager
def _time_limit() -> Iterator[None]:
    """Stop the code inside after five seconds of processor time. Signals reach only the main thread, which runs helpers.

    Wall-clock time would make the score depend on what else the machine does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_timeout(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGPROF, raise_timeout)
    signal.setitimer(signal.ITIMER_PROF, _TIME_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
