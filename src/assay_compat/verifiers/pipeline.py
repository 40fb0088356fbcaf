"""Implementation of `lmms_eval.verifiers.pipeline`."""

from __future__ import annotations

from typing import Any

from assay_compat.verifiers.interfaces import Extractor, Verifier, VerifyResult

__all__ = ["VerificationPipeline"]


class VerificationPipeline:
    """Applies extractors in order, then one verifier."""

    def __init__(self, extractors: list[Extractor] | None = None, verifier: Verifier | None = None) -> None:
        if verifier is None:
            raise ValueError("VerificationPipeline needs a verifier")
        self.extractors = extractors or []
        self.verifier = verifier

    def __call__(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        extracted = prediction
        for extractor in self.extractors:
            extracted = extractor(extracted, **kwargs)
        result = self.verifier.verify(question, extracted, ground_truth, **kwargs)
        result.metadata["raw_prediction"] = prediction
        result.metadata["extracted_prediction"] = extracted
        return result

    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        return self(question, prediction, ground_truth, **kwargs)
