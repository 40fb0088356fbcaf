"""Oracle replay: what the real harness asked, answered and scored, done again by Assay and compared.

`python -m assay.testing.oracle CORPUS_DIR --task_root DIR` works on any corpus in the documented format.
"""
