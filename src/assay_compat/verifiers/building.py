"""What `lmms_eval.verifiers` offers: take the answer out, then say whether it is right."""

from __future__ import annotations

from typing import Any

from assay_compat.verifiers.base import Extractor, Verifier, VerifyResult, parse_binary_response
from assay_compat.verifiers.composite import CompositeVerifier
from assay_compat.verifiers.extractors import (
    MCQExtractor,
    NumberExtractor,
    RegexExtractor,
    StripExtractor,
    StripReasoningExtractor,
)
from assay_compat.verifiers.pipeline import VerificationPipeline
from assay_compat.verifiers.rule import (
    ContainsVerifier,
    ExactMatchVerifier,
    MCQMatchVerifier,
    NumericToleranceVerifier,
)

__all__ = [
    "EXTRACTOR_REGISTRY",
    "VERIFIER_REGISTRY",
    "CompositeVerifier",
    "ContainsVerifier",
    "ExactMatchVerifier",
    "Extractor",
    "MCQExtractor",
    "MCQMatchVerifier",
    "NumberExtractor",
    "NumericToleranceVerifier",
    "RegexExtractor",
    "StripExtractor",
    "StripReasoningExtractor",
    "VerificationPipeline",
    "Verifier",
    "VerifyResult",
    "build_verification_pipeline",
    "parse_binary_response",
]

EXTRACTOR_REGISTRY: dict[str, type[Extractor]] = {
    "strip_reasoning": StripReasoningExtractor,
    "regex": RegexExtractor,
    "mcq": MCQExtractor,
    "number": NumberExtractor,
    "strip": StripExtractor,
}
VERIFIER_REGISTRY: dict[str, type[Verifier]] = {
    "exact_match": ExactMatchVerifier,
    "contains": ContainsVerifier,
    "mcq_match": MCQMatchVerifier,
    "numeric": NumericToleranceVerifier,
    "composite": CompositeVerifier,
}


def build_verification_pipeline(config: dict[str, Any]) -> VerificationPipeline:
    """A pipeline from `{"extractors": [{"type": …}], "verifier": {"type": …}}`."""
    extractors = [_made(entry, _extractor) for entry in config.get("extractors", [])]
    wanted = dict(config.get("verifier", {}))
    if wanted.get("type") == "composite":
        parts = [_made(entry, _verifier) for entry in wanted.get("verifiers", [])]
        return VerificationPipeline(extractors, CompositeVerifier(parts))
    return VerificationPipeline(extractors, _made(wanted, _verifier))


def _made(entry: dict[str, Any], find: Any) -> Any:
    arguments = dict(entry)
    return find(arguments.pop("type"))(**arguments)


def _extractor(name: str) -> type[Extractor]:
    if name not in EXTRACTOR_REGISTRY:
        raise KeyError(f"no extractor is called {name!r}; there are {sorted(EXTRACTOR_REGISTRY)}")
    return EXTRACTOR_REGISTRY[name]


def _verifier(name: str) -> type[Verifier]:
    if name == "openai":
        from assay_compat.verifiers.judged import OpenAIVerifier

        return OpenAIVerifier
    if name not in VERIFIER_REGISTRY:
        raise KeyError(f"no verifier is called {name!r}; there are {sorted([*VERIFIER_REGISTRY, 'openai'])}")
    return VERIFIER_REGISTRY[name]
