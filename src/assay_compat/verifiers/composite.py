"""What `lmms_eval.verifiers.composite` offers."""

from __future__ import annotations

from typing import Any

from assay_compat.verifiers.base import Verifier, VerifyResult

__all__ = ["CompositeVerifier"]


class CompositeVerifier(Verifier):
    """One after the other until one is confident; the last one is believed anyway."""

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
