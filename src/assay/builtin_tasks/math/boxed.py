"""The answer of a solution in MATH: what stands in its last box."""

from __future__ import annotations

_OPEN = "\\boxed "


def boxed_answer(solution: str) -> str:
    r"""What the last `\boxed{…}` of a solution holds, braces inside it included.

    >>> boxed_answer(r"First $\boxed{1}$, then $x = \boxed{\frac{1}{2}}$."), boxed_answer(r"It is $\boxed 7$.")
    ('\\frac{1}{2}', '7')
    """
    if _OPEN in solution:  # the short form: up to the end of the formula
        return solution.rpartition(_OPEN)[2].partition("$")[0]
    _, box, after = solution.rpartition("\\boxed")
    if not box or not after.startswith("{"):
        raise ValueError(f"the solution has no boxed answer: {solution[-80:]!r}")
    depth = 0
    for at, letter in enumerate(after):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return after[1:at]
    raise ValueError(f"the box of the answer has no end: {after[:80]!r}")
