"""`lm_eval.config`: the import location of `EvaluatorConfig`."""
