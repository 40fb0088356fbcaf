"""Implementation of `lmms_eval.verifiers.rule`: verifiers that need no judge.

`metadata["confident"]` tells a composite verifier to stop: text comparisons are confident if they match, letter and
number comparisons if they could parse the prediction.
"""

from __future__ import annotations

import math
import re
from typing import Any

from assay_compat.verifiers.interfaces import Verifier, VerifyResult

__all__ = ["ContainsVerifier", "ExactMatchVerifier", "MCQMatchVerifier", "NumericToleranceVerifier"]


def _result(correct: bool, raw_output: str, *, confident: bool) -> VerifyResult:
    return VerifyResult(
        score=float(correct), is_correct=correct, raw_output=raw_output, metadata={"confident": confident}
    )


class ExactMatchVerifier(Verifier):
    """The prediction equals the ground truth."""

    def __init__(self, ignore_case: bool = True, strip: bool = True) -> None:
        self.ignore_case = ignore_case
        self.strip = strip

    def _normalize(self, text: str) -> str:
        text = text.strip() if self.strip else text
        return text.lower() if self.ignore_case else text

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        said, true = self._normalize(prediction), self._normalize(ground_truth)
        return _result(said == true, f"exact_match: '{said}' vs '{true}'", confident=said == true)


class ContainsVerifier(Verifier):
    """The prediction contains the ground truth."""

    def __init__(self, ignore_case: bool = True) -> None:
        self.ignore_case = ignore_case

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        said, true = prediction, ground_truth
        if self.ignore_case:
            said, true = said.lower(), true.lower()
        return _result(
            true in said, f"contains: '{true}' in prediction={true in said}", confident=true in said
        )


class MCQMatchVerifier(Verifier):
    """The same letter: `A`, `(A)`, `A.`"""

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        said, true = (text.strip().upper().strip("(). ") for text in (prediction, ground_truth))
        is_letter = re.fullmatch(r"[A-Z]", said) is not None
        return _result(said == true, f"mcq_match: '{said}' vs '{true}'", confident=is_letter)


class NumericToleranceVerifier(Verifier):
    """The prediction is the same number within a tolerance."""

    def __init__(self, rel_tol: float = 1e-3, abs_tol: float = 1e-6) -> None:
        self.rel_tol = rel_tol
        self.abs_tol = abs_tol

    @staticmethod
    def _parse_number(text: str) -> float | None:
        text = text.strip().replace(",", "").replace("%", "")
        try:
            return float(text)
        except ValueError:
            numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
            return float(numbers[-1]) if numbers else None

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        said, true = self._parse_number(prediction), self._parse_number(ground_truth)
        if said is None or true is None:
            what = f"numeric_parse_fail: pred={prediction!r} gt={ground_truth!r}"
            return _result(False, what, confident=False)
        close = math.isclose(said, true, rel_tol=self.rel_tol, abs_tol=self.abs_tol)
        return _result(close, f"numeric: {said} vs {true} (rel_tol={self.rel_tol})", confident=True)
