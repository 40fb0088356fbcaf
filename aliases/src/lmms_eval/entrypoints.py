"""`lmms_eval.entrypoints`: the HTTP server of lmms-eval, which Assay does not have."""

raise ImportError(
    "Assay has no evaluation server (`EvalClient`, `ServerArgs`); start `assay run` in the background,"
    " or `assay watch` to evaluate the checkpoints of a training run"
)
