"""Shim for `lmms_eval.verifiers`."""

from __future__ import annotations

from assay_compat.verifiers.composite import (
    CompositeVerifier,
)
from assay_compat.verifiers.extractors import (
    MCQExtractor,
    NumberExtractor,
    RegexExtractor,
    StripExtractor,
    StripReasoningExtractor,
)
from assay_compat.verifiers.interfaces import (
    Extractor,
    Verifier,
    VerifyResult,
    parse_binary_response,
)
from assay_compat.verifiers.pipeline import (
    VerificationPipeline,
)
from assay_compat.verifiers.registry import (
    EXTRACTOR_REGISTRY,
    VERIFIER_REGISTRY,
    build_verification_pipeline,
)
from assay_compat.verifiers.rule import (
    ContainsVerifier,
    ExactMatchVerifier,
    MCQMatchVerifier,
    NumericToleranceVerifier,
)

__all__ = [
    "CompositeVerifier",
    "ContainsVerifier",
    "EXTRACTOR_REGISTRY",
    "ExactMatchVerifier",
    "Extractor",
    "MCQExtractor",
    "MCQMatchVerifier",
    "NumberExtractor",
    "NumericToleranceVerifier",
    "RegexExtractor",
    "StripExtractor",
    "StripReasoningExtractor",
    "VERIFIER_REGISTRY",
    "VerificationPipeline",
    "Verifier",
    "VerifyResult",
    "build_verification_pipeline",
    "parse_binary_response",
]
