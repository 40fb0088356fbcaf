"""Assay evaluates language and multimodal models and reports confidence intervals.

>>> import assay
>>> run = assay.run(model="embedded", tasks=["quickstart"], limit=10)  # doctest: +SKIP
>>> print(run.table())  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC_NAMES = {
    "run": "assay.api",
    "compare": "assay.api",
    "plan": "assay.api",
    "open_run": "assay.api",
    "resume": "assay.api",
    "Run": "assay.api",
    "Plan": "assay.engine.planning.records",
    "RunSpec": "assay.core.options.run_spec",
    "TaskSpec": "assay.core.specs",
    "GroupSpec": "assay.core.specs",
    "Document": "assay.core.documents",
    "Message": "assay.core.messages",
    "Text": "assay.core.messages",
    "Image": "assay.core.messages",
    "Audio": "assay.core.messages",
    "Video": "assay.core.messages",
    "Prompt": "assay.core.messages",
    "Generate": "assay.core.requests",
    "Likelihood": "assay.core.requests",
    "RollingLikelihood": "assay.core.requests",
    "Settings": "assay.core.requests",
    "Response": "assay.core.responses",
    "Failure": "assay.core.responses",
    "LogProbability": "assay.core.responses",
    "Score": "assay.core.verdicts",
    "Evidence": "assay.core.verdicts",
    "Unscored": "assay.core.verdicts",
    "Estimate": "assay.core.verdicts",
    "Model": "assay.core.ports",
    "Traits": "assay.core.ports",
    "AssayError": "assay.core.errors",
}

__all__ = [
    "AssayError",
    "Audio",
    "Document",
    "Estimate",
    "Evidence",
    "Failure",
    "Generate",
    "GroupSpec",
    "Image",
    "Likelihood",
    "LogProbability",
    "Message",
    "Model",
    "Plan",
    "Prompt",
    "Response",
    "RollingLikelihood",
    "Run",
    "RunSpec",
    "Score",
    "Settings",
    "TaskSpec",
    "Text",
    "Traits",
    "Unscored",
    "Video",
    "compare",
    "open_run",
    "plan",
    "resume",
    "run",
]

if TYPE_CHECKING:
    from assay.api import Run, compare, open_run, plan, resume, run
    from assay.core.documents import Document
    from assay.core.errors import AssayError
    from assay.core.messages import Audio, Image, Message, Prompt, Text, Video
    from assay.core.options.run_spec import RunSpec
    from assay.core.ports import Model, Traits
    from assay.core.requests import Generate, Likelihood, RollingLikelihood, Settings
    from assay.core.responses import Failure, LogProbability, Response
    from assay.core.specs import GroupSpec, TaskSpec
    from assay.core.verdicts import Estimate, Evidence, Score, Unscored
    from assay.engine.planning.records import Plan


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import assay` stays fast."""
    if name in _PUBLIC_NAMES:
        return getattr(import_module(_PUBLIC_NAMES[name]), name)
    raise AttributeError(f"module 'assay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
