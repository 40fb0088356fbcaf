"""Shim for `transformers.data.metrics.squad_metrics`, which transformers 5 no longer has."""

from __future__ import annotations

from assay.scoring.hf_evaluate.squad import compute_f1 as compute_f1
from assay.scoring.hf_evaluate.squad import match_exactly as compute_exact
from assay.scoring.hf_evaluate.squad import normalize_answer as normalize_answer
from assay.scoring.hf_evaluate.squad import tokenize_answer as get_tokens

__all__ = ["compute_exact", "compute_f1", "get_tokens", "normalize_answer"]
