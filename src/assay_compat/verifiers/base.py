"""What `lmms_eval.verifiers.base` offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Extractor", "Verifier", "VerifyResult", "parse_binary_response"]


@dataclass
class VerifyResult:
    """How one prediction was found."""

    score: float
    is_correct: bool
    raw_output: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


class Verifier(ABC):
    """Says whether a prediction is right."""

    @abstractmethod
    def verify(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult: ...

    def __call__(self, question: str, prediction: str, ground_truth: str, **kwargs: Any) -> VerifyResult:
        return self.verify(question, prediction, ground_truth, **kwargs)


class Extractor(ABC):
    """Takes the answer out of what a model wrote."""

    @abstractmethod
    def extract(self, text: str, **kwargs: Any) -> str: ...

    def __call__(self, text: str, **kwargs: Any) -> str:
        return self.extract(text, **kwargs)


def parse_binary_response(text: str) -> bool:
    """As forgiving as lmms-eval's: a yes, a true or a 1 anywhere counts, unless it says incorrect."""
    said = text.strip().lower()
    if "incorrect" in said or "not_attempted" in said:
        return False
    return any(sign in said for sign in ("correct", "yes", "true", "1"))
