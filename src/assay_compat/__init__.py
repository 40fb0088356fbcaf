"""Foreign names for task helpers: `lm_eval.*` and `lmms_eval.*` as their files import them, without either package.

Assay finds this package through the entry point group `assay.compat`; nothing in `assay` imports it by name.
"""
