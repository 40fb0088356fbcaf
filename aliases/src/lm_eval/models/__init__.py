"""`lm_eval.models`: the import location of model classes."""

from assay_compat.import_finders import import_submodule


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lm_eval.models.huggingface.HFLM`."""
    return import_submodule(__name__, name)
