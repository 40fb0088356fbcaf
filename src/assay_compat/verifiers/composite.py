"""Implementation of `lmms_eval.verifiers.composite`."""

from __future__ import annotations

from typing import Any

from assay_compat.verifiers.interfaces import Verifier, VerifyResult

__all__ = ["CompositeVerifier"]


class CompositeVerifier(Verifier):
    """Tries verifiers in order until one is confident; otherwise uses the last result."""

    def __init__(self, verifiers: list[Verifier]) -> None:
        if not verifiers:
            raise ValueError("CompositeVerifier needs at least one verifier")
        self.verifiers = verifiers

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        for verifier in self.verifiers:
            result = verifier.verify(question, prediction, ground_truth, **kwargs)
            if result.metadata.get("confident", True):
                break
        return result
