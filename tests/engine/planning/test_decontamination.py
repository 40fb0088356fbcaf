from __future__ import annotations

import json
from pathlib import Path

import pytest

import assay
from assay.core.errors import InvalidOption
from assay.testing import ScriptedModel

ROWS = [
    {
        "question": "the quick brown fox jumps over the lazy dog while seven wise owls watch it",
        "answer": "yes",
    },
    {
        "question": "a completely different question about the price of tea in a small harbour town today",
        "answer": "no",
    },
]
TASK = """
task: owls
dataset_path: json
dataset_kwargs: {data_files: {test: owls.jsonl}}
test_split: test
doc_to_text: "{{question}}"
doc_to_target: answer
should_decontaminate: true
doc_to_decontamination_query: question
metric_list:
  - metric: exact_match
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "owls.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    path = tmp_path / "owls.yaml"
    path.write_text(TASK)
    return path


def run(task: Path, corpus: Path) -> assay.Run:
    return assay.run(
        model=ScriptedModel(),
        tasks=[str(task)],
        output_path=str(task.parent / "out"),
        decontamination_ngrams_path=str(corpus),
        no_cache=True,
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("corpus.txt", f"something else\nonce, {ROWS[0]['question'].title()}!\n"),
        ("corpus.jsonl", json.dumps({"text": f"once {ROWS[0]['question']}"}) + "\n\n"),
    ],
    ids=["lines of text", "jsonl"],
)
def test_scores_are_reported_with_and_without_contaminated_documents(
    task: Path, tmp_path: Path, name: str, content: str
) -> None:
    corpus = tmp_path / name
    corpus.write_text(content)
    finished = run(task, corpus)
    numbers = finished.results["owls"]
    assert numbers["exact_match,none"] == 0.5
    assert numbers["exact_match_decontaminate,none"] == 0.0
    assert list(finished.facts["contaminated"]["owls"]) == ["0"]


def test_a_folder_of_text_files_is_a_corpus(task: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("nothing\n")
    (folder / "b.txt").write_text(ROWS[1]["question"])
    assert run(task, folder).results["owls"]["exact_match_decontaminate,none"] == 1.0


def test_a_missing_corpus_is_an_error_in_the_plan(task: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="no corpus"):
        run(task, tmp_path / "nowhere")


def test_a_jsonl_line_without_text_is_an_error_with_its_location(task: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "bad.jsonl"
    corpus.write_text('{"text": "fine"}\n{"no": 1}\n')
    with pytest.raises(InvalidOption, match="must be an object with `text`") as caught:
        run(task, corpus)
    assert caught.value.where.endswith("bad.jsonl:2")
