"""Implementation of `lmms_eval.verifiers.base`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Extractor", "Verifier", "VerifyResult", "parse_binary_response"]


@dataclass
class VerifyResult:
    """The result of verifying one prediction."""

    score: float
    is_correct: bool
    raw_output: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


class Verifier(ABC):
    """Decides whether a prediction is correct."""

    @abstractmethod
    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult: ...

    def __call__(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        return self.verify(question, prediction, ground_truth, **kwargs)


class Extractor(ABC):
    """Extracts the answer from a response."""

    @abstractmethod
    def extract(self, text: str, **kwargs: Any) -> str: ...

    def __call__(self, text: str, **kwargs: Any) -> str:
        return self.extract(text, **kwargs)


def parse_binary_response(text: str) -> bool:
    """Return whether a reply contains correct, yes, true or 1 and not incorrect, as lmms-eval does."""
    reply = text.strip().lower()
    if "incorrect" in reply or "not_attempted" in reply:
        return False
    return any(sign in reply for sign in ("correct", "yes", "true", "1"))
