"""The package name `lmms_eval`, implemented by Assay."""

from assay.core.installation import assay_version
from assay_compat.commands.script_api import evaluate, simple_evaluate
from assay_compat.import_finders import import_submodule
from assay_compat.plugin import install

install()  # `lmms_eval.api`, `lmms_eval.utils` and `lmms_eval.tasks` come from Assay
__version__ = assay_version()
__all__ = ["__version__", "evaluate", "simple_evaluate"]


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lmms_eval.tasks.TaskManager()` after `import lmms_eval`."""
    return import_submodule(__name__, name)
