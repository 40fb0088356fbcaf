"""Compatibility with lm_eval and lmms_eval: their import names, class tasks, commands, script API and result files.

Assay finds this package through the entry point group `assay.compat`; nothing in `assay` imports it by name.
"""
