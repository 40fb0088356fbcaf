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
    "Task": "assay.tasks.python_task:PythonTask",
    "FunctionModel": "assay.models.function_model",
    "Plan": "assay.engine.planning.records",
    "RunSpec": "assay.core.options.run_spec",
    "TaskSpec": "assay.core.records.specs",
    "GroupSpec": "assay.core.records.specs",
    "Document": "assay.core.records.documents",
    "Message": "assay.core.records.messages",
    "Text": "assay.core.records.messages",
    "Image": "assay.core.records.messages",
    "Audio": "assay.core.records.messages",
    "Video": "assay.core.records.messages",
    "Prompt": "assay.core.records.messages",
    "Generate": "assay.core.records.requests",
    "Likelihood": "assay.core.records.requests",
    "RollingLikelihood": "assay.core.records.requests",
    "Settings": "assay.core.records.requests",
    "Response": "assay.core.records.responses",
    "Failure": "assay.core.records.responses",
    "LogProbability": "assay.core.records.responses",
    "Score": "assay.core.records.verdicts",
    "Evidence": "assay.core.records.verdicts",
    "Unscored": "assay.core.records.verdicts",
    "Estimate": "assay.core.records.verdicts",
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
    "FunctionModel",
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
    "Task",
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
    from assay.core.errors import AssayError
    from assay.core.options.run_spec import RunSpec
    from assay.core.ports import Model, Traits
    from assay.core.records.documents import Document
    from assay.core.records.messages import Audio, Image, Message, Prompt, Text, Video
    from assay.core.records.requests import Generate, Likelihood, RollingLikelihood, Settings
    from assay.core.records.responses import Failure, LogProbability, Response
    from assay.core.records.specs import GroupSpec, TaskSpec
    from assay.core.records.verdicts import Estimate, Evidence, Score, Unscored
    from assay.engine.planning.records import Plan
    from assay.models.function_model import FunctionModel
    from assay.tasks.python_task import PythonTask as Task

    __version__: str


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import assay` stays fast."""
    if name in _PUBLIC_NAMES:
        module, _, attribute = _PUBLIC_NAMES[name].partition(":")
        return getattr(import_module(module), attribute or name)
    if name == "__version__":
        from assay.core.installation import assay_version

        return assay_version()
    raise AttributeError(f"module 'assay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
