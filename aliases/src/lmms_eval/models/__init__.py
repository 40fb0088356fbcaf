"""`lmms_eval.models`: the import location of model classes."""
