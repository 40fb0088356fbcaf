"""Functions of `lm_eval.utils` that scripts find result files with."""

from __future__ import annotations

from assay_compat.shims.lm_eval import utils

NAMES = [
    "out/results_2025-01-02T03-04-05.1.json",
    "out/results_2026-01-02T03-04-05.1.json",
    "out/samples_a_b_2025-01-02T03-04-05.1.jsonl",
]


def test_result_files_are_found_by_kind_task_and_date() -> None:
    assert utils.get_results_filenames(NAMES) == NAMES[:2]
    assert utils.get_sample_results_filenames(NAMES) == NAMES[2:]
    assert utils.get_latest_filename(NAMES[:2]) == NAMES[1]
    assert utils.get_file_task_name("samples_a_b_2025-01-02T03-04-05.1.jsonl") == "a_b"
    assert utils.get_file_datetime(NAMES[2]) == "2025-01-02T03-04-05.1"
    assert utils.sanitize_model_name('org/model:"x"') == "org__model__x__"
