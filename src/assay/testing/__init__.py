"""The public test kit: a scripted model, and checks for those who write adapters."""

from assay.testing.contracts import MODEL_CHECKS, ContractBroken, check_model, example_requests
from assay.testing.judges import check_judge
from assay.testing.scoring import check_filter, check_metric
from assay.testing.scripted import ScriptedModel

__all__ = [
    "MODEL_CHECKS",
    "ContractBroken",
    "ScriptedModel",
    "check_filter",
    "check_judge",
    "check_metric",
    "check_model",
    "example_requests",
]
