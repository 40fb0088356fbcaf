"""The package name `lm_eval`, implemented by Assay."""

from assay.core.installation import assay_version
from assay_compat.commands.script_api import evaluate, simple_evaluate
from assay_compat.import_finders import import_submodule
from assay_compat.plugin import install

install()  # `lm_eval.api`, `lm_eval.utils` and `lm_eval.tasks` come from Assay
__version__ = assay_version()
__all__ = ["__version__", "evaluate", "simple_evaluate"]


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lm_eval.tasks.TaskManager()` after `import lm_eval`."""
    return import_submodule(__name__, name)
