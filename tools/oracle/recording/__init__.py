"""Record a corpus with the real harness. These modules run inside the harness's environment and do not import Assay."""
