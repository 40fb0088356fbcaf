"""Token usage of a run, and the prompts that exceed the context length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.making import write_choices, write_task

import assay
from assay.store.runs.run import Run
from assay.store.runs.usage import TruncationTotals
from assay.viewer.exports.lm_eval import build_results
from assay.viewer.results.notes import format_notes
from assay.viewer.results.run_overview import build_run_overview

_LENGTHS = (10, 100, 250, 300)
"""Words of the prompts. The embedded model reads 1024 characters."""


@pytest.fixture
def tasks(tmp_path: Path) -> list[str]:
    rows = [{"question": "word " * count, "answer": "1"} for count in _LENGTHS]
    settings = {"max_gen_toks": 8, "until": ["\n"]}
    return [
        str(write_task(tmp_path, "long", rows, generation_kwargs=settings)),
        str(write_choices(tmp_path, doc_to_text="{{ 'word ' * 250 }}{{question}}", rows=2)),
        str(write_choices(tmp_path, "short")),
    ]


def run_embedded(folder: Path, tasks: list[str]) -> Run:
    return assay.run(model="embedded", tasks=tasks, output_path=str(folder))


def test_truncated_prompts_are_counted_by_task(tmp_path: Path, tasks: list[str]) -> None:
    run = run_embedded(tmp_path / "out", tasks)
    found = run.truncated_prompts
    assert sorted(found) == ["choices", "long"]
    whole = sum(1 + len("Question: " + "word " * count + "\nAnswer:") for count in (250, 300))
    assert found["long"] == TruncationTotals(
        requests=2, documents=2, asked=4, truncated_tokens=whole - 2 * 1016, input_tokens=2 * 1016
    )
    assert (found["choices"].requests, found["choices"].documents, found["choices"].asked) == (4, 2, 4)
    note = f"warning: long: 2 of 4 prompts truncated to the context length: 1016 of {whole / 2:.0f} tokens remain"
    notes = "\n".join(format_notes(run))
    assert note in notes
    assert "short: " not in notes


def test_results_and_pages_tell_of_truncated_prompts(tmp_path: Path, tasks: list[str]) -> None:
    run = run_embedded(tmp_path / "out", tasks)
    results = build_results(run)
    assert results["n-samples"]["long"]["truncated_prompts"]["requests"] == 2
    assert "truncated_prompts" not in results["n-samples"]["short"]
    assert [note.split(":")[1].strip() for note in results["notes"]] == ["long", "choices"]
    assert any("prompts truncated" in note for note in build_run_overview(run).notes)


def test_truncated_prompts_are_known_of_cached_responses(tmp_path: Path, tasks: list[str]) -> None:
    first = run_embedded(tmp_path / "first", tasks[1:2])
    second = run_embedded(tmp_path / "second", tasks[1:2])
    assert second.journal.count_cached_responses()[0] == 4
    assert second.truncated_prompts == first.truncated_prompts


def test_other_rows_of_the_journal_do_not_change(tmp_path: Path, tasks: list[str]) -> None:
    run = run_embedded(tmp_path / "out", tasks[2:])
    details = [json.loads(text) for (text,) in run.journal.query("SELECT details FROM main.answered")]
    assert details and not any("truncated_tokens" in one for one in details)
    assert run.truncated_prompts == {}
