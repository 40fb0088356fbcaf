"""Stand-in for `transformers.data.metrics.squad_metrics`, which transformers 5 no longer has."""

from __future__ import annotations

from assay.scoring.hub.squad import answer_tokens as get_tokens
from assay.scoring.hub.squad import exact as compute_exact
from assay.scoring.hub.squad import normal_answer as normalize_answer
from assay.scoring.hub.squad import overlap as compute_f1

__all__ = ["compute_exact", "compute_f1", "get_tokens", "normalize_answer"]
