"""Implementation of `lmms_eval.verifiers`: registries and `build_verification_pipeline`."""

from __future__ import annotations

from typing import Any

from assay_compat.verifiers.composite import CompositeVerifier
from assay_compat.verifiers.extractors import (
    MCQExtractor,
    NumberExtractor,
    RegexExtractor,
    StripExtractor,
    StripReasoningExtractor,
)
from assay_compat.verifiers.interfaces import Extractor, Verifier, VerifyResult, parse_binary_response
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
    """Build a pipeline from `{"extractors": [{"type": …}], "verifier": {"type": …}}`."""
    extractors = [_create_component(entry, _find_extractor) for entry in config.get("extractors", [])]
    verifier_config = dict(config.get("verifier", {}))
    if verifier_config.get("type") == "composite":
        parts = [_create_component(entry, _find_verifier) for entry in verifier_config.get("verifiers", [])]
        return VerificationPipeline(extractors, CompositeVerifier(parts))
    return VerificationPipeline(extractors, _create_component(verifier_config, _find_verifier))


def _create_component(entry: dict[str, Any], find: Any) -> Any:
    arguments = dict(entry)
    return find(arguments.pop("type"))(**arguments)


def _find_extractor(name: str) -> type[Extractor]:
    if name not in EXTRACTOR_REGISTRY:
        raise KeyError(f"unknown extractor {name!r}; available: {sorted(EXTRACTOR_REGISTRY)}")
    return EXTRACTOR_REGISTRY[name]


def _find_verifier(name: str) -> type[Verifier]:
    if name == "openai":
        from assay_compat.verifiers.llm_verifier import OpenAIVerifier

        return OpenAIVerifier
    if name not in VERIFIER_REGISTRY:
        raise KeyError(f"unknown verifier {name!r}; available: {sorted([*VERIFIER_REGISTRY, 'openai'])}")
    return VERIFIER_REGISTRY[name]
