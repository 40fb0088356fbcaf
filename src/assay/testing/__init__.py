"""The public test kit: a scripted model and contract checks for authors of plugins."""

from assay.testing.contracts import MODEL_CHECKS, check_model, example_requests
from assay.testing.judges import check_judge
from assay.testing.scoring import check_filter, check_metric
from assay.testing.scripted import ScriptedModel
from assay.testing.violations import ContractViolation

ContractBroken = ContractViolation
"""The former name of `ContractViolation`."""

__all__ = [
    "MODEL_CHECKS",
    "ContractBroken",
    "ContractViolation",
    "ScriptedModel",
    "check_filter",
    "check_judge",
    "check_metric",
    "check_model",
    "example_requests",
]
