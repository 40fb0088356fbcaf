"""Parity with other harnesses: record what a harness does (`record`), repeat it with Assay and compare (`replay`).

`python -m tools.oracle.replay CORPUS --task_root DIR` replays any corpus in the documented format.
`python -m tools.oracle.record --harness lm_eval==0.4.13 … -o CORPUS` records one with the real harness.
"""
