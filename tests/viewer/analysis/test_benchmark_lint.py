"""Problems of a benchmark found in several runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import UserError
from assay.core.records.responses import LogProbability
from assay.viewer.analysis.benchmark_lint import LintFinding, lint_benchmark
from assay.viewer.comparison.sources import open_source

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(30)]


def make_run(folder: Path, name: str, answers: Callable[[Any], Any], task: Path, **options: Any) -> Any:
    return assay.run(
        model=make_model(answers), tasks=[str(task)], no_cache=True, output_path=str(folder / name), **options
    )


def lint(*runs: Any, blind: Any = None) -> dict[str, LintFinding]:
    found = lint_benchmark([open_source(run) for run in runs], None if blind is None else open_source(blind))
    return {one.kind: one for one in found}


def test_documents_that_no_or_every_run_gets_right_and_wrong_targets_are_found(tmp_path: Path) -> None:
    """Six models of rising strength: only weak ones are right on document 29, none on 28, all on 0."""
    task = write_task(tmp_path, "sums", ROWS)

    def model(strength: int) -> Callable[[Any], str]:
        def answer(request: Any) -> str:
            n = request.document
            right = n == 0 or (n < 28 and n % 6 < strength) or (n == 29 and strength < 3)
            return str(n + 1) if right else "?"

        return answer

    runs = [make_run(tmp_path, f"m{strength}", model(strength), task) for strength in range(6)]
    found = lint(*runs)
    assert 0 in found["always"].documents
    assert 28 in found["never"].documents
    assert found["negative"].documents == (29,)
    assert found["never"].total == 30


def test_duplicate_documents_are_found(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, "a", lambda request: "?", write_task(tmp_path, "sums", [*ROWS, ROWS[3], ROWS[3]])
    )
    found = lint(run)["duplicates"]
    assert (found.count, found.documents) == (2, (30, 31))


def test_questions_in_their_own_fewshot_examples_are_found(tmp_path: Path) -> None:
    shown: dict[str, Any] = {
        "num_fewshot": 3,
        "dataset_kwargs": {"data_files": {"test": "sums.jsonl", "train": "sums.jsonl"}},
        "fewshot_split": "train",
        "fewshot_config": {"sampler": "first_n"},
    }
    task = write_task(tmp_path, "sums", ROWS, **shown)
    run = make_run(tmp_path, "a", lambda request: "?", task)
    prompts = dict(run.journal.query("SELECT document, prompt FROM requests"))
    leaking = [n for n, prompt in prompts.items() if prompt.count(f"What is {n} + 1?") > 1]
    found = lint(run).get("leakage")
    assert (found.documents if found else ()) == tuple(leaking)
    assert leaking, "the examples are the first documents, so those see themselves"


@pytest.mark.parametrize("options", [{}, {"apply_chat_template": True}, {"apply_chat_template": True, "fewshot_as_multiturn": True}], ids=["text", "chat", "turns"])  # fmt: skip
@pytest.mark.parametrize("delimiter", ["\n\n", "\n", " ### "])
def test_leakage_is_found_with_any_delimiter_and_chat_messages(
    tmp_path: Path, options: dict[str, Any], delimiter: str
) -> None:
    shown: dict[str, Any] = {
        "num_fewshot": 3,
        "dataset_kwargs": {"data_files": {"test": "sums.jsonl", "train": "sums.jsonl"}},
        "fewshot_split": "train",
        "fewshot_delimiter": delimiter,
        "fewshot_config": {"sampler": "first_n"},
        "doc_to_text": "Q: {{question}} A:",
    }
    task = write_task(tmp_path, "sums", ROWS, **shown)
    found = lint(make_run(tmp_path, "a", lambda request: "?", task, **options))["leakage"]
    assert found.documents == (0, 1, 2) and found.total == 30


def test_a_question_that_the_template_repeats_is_no_leakage(tmp_path: Path) -> None:
    rows = [
        {"question": f"Name the animal number {n} of the list.", "answer": f"animal-{n}"} for n in range(25)
    ]
    shown: dict[str, Any] = {
        "num_fewshot": 1,
        "doc_to_text": "{{question}} Again: {{question}}",
        "fewshot_config": {"samples": [{"question": "Name an animal of your own.", "answer": "cat"}]},
    }
    task = write_task(tmp_path, "animals", rows, **shown)
    assert "leakage" not in lint(make_run(tmp_path, "a", lambda request: "?", task))


def test_near_duplicates_are_found(tmp_path: Path) -> None:
    cities = "Berlin Paris London Madrid Rome Vienna Warsaw Prague Lisbon Dublin".split()
    rows = [{"id": n, "question": f"Which river flows through the city of {city}?", "answer": city} for n, city in enumerate(cities)]  # fmt: skip
    rows += [
        {"id": 10, "question": "which river  flows through the city of berlin", "answer": "Berlin"},
        {"id": 11, "question": "Which river flows throuhg the city of Paris?", "answer": "Paris"},
    ]
    found = lint(make_run(tmp_path, "a", lambda request: "?", write_task(tmp_path, "rivers", rows)))
    assert found["near-duplicates"].documents == (10, 11)
    assert "10 like 0, 11 like 1" in found["near-duplicates"].what
    assert "duplicates" not in found


def test_constant_targets_and_answers_are_found(tmp_path: Path) -> None:
    rows = [{"question": f"Is {n} prime?", "answer": "no" if n % 5 else "yes"} for n in range(100)]
    run = make_run(
        tmp_path, "a", lambda request: str(request.document), write_task(tmp_path / "p", "primes", rows)
    )
    assert "the target is 'no' in 80 % of documents" in lint(run)["constant"].what
    run = make_run(tmp_path, "b", lambda request: "0", write_task(tmp_path / "s", "sums", ROWS))
    assert "answers '0' to 100 % of documents" in lint(run)["constant"].what


def test_wrong_keys_are_found_by_the_agreement_of_strong_models(tmp_path: Path) -> None:
    """Eight models of different strength; the keys of documents 3 and 17 are wrong."""
    rows = [{**row, "answer": "999" if n in (3, 17) else row["answer"]} for n, row in enumerate(ROWS)]
    task = write_task(tmp_path, "sums", rows)

    def model(strength: int) -> Callable[[Any], str]:
        def answer(request: Any) -> str:
            n = request.document
            knows = (n * 7 + strength) % 9 < strength + 1 or (n in (3, 17) and strength > 2)
            return str(n + 1) if knows else f"guess {strength * 31 + n}"

        return answer

    runs = [make_run(tmp_path, f"m{strength}", model(strength), task) for strength in range(8)]
    found = lint(*runs)["wrong-key"]
    assert found.documents == (3, 17)
    assert "of 8 answer '4'" in found.what


def test_position_bias_is_found(tmp_path: Path) -> None:
    task = write_choices(tmp_path, rows=60)
    first = make_run(tmp_path, "a", lambda request: LogProbability(-1.0 - request.index, True), task)
    assert "chooses position 1 in 100 %" in lint(first)["position"].what


def test_a_model_that_follows_an_uneven_key_is_not_biased(tmp_path: Path) -> None:
    rows = [{"question": f"Is {n} large?", "choices": ["no", "yes"], "answer": int(n > 6)} for n in range(60)]
    task = write_task(tmp_path, "choices", rows, output_type="multiple_choice", doc_to_choice="choices", metric_list=[{"metric": "acc"}])  # fmt: skip
    run = make_run(
        tmp_path,
        "a",
        lambda request: LogProbability(-1.0 if request.index == int(request.document > 6) else -2.0, True),
        task,
    )
    assert "the target is at position 2 in 88 % of documents" in lint(run)["position"].what


def test_documents_that_need_no_image_are_found(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    seeing = make_run(tmp_path, "a", lambda request: str(request.document + 1), task)
    blind = make_run(
        tmp_path, "b", lambda request: str(request.document + 1 if request.document < 15 else 0), task
    )
    found = lint(seeing, blind=blind)["blind"]
    assert (found.count, found.total) == (15, 30)
    assert "50 % of the score" in found.what


def test_runs_of_different_benchmarks_are_an_error(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, name, lambda request: "?", write_task(tmp_path / name, name, ROWS[:3]))
        for name in "ab"
    ]
    with pytest.raises(UserError, match="no task in common"):
        lint(*runs)


def test_the_same_question_with_another_target_is_a_contradiction(tmp_path: Path) -> None:
    cities = "Berlin Paris London Madrid Rome Vienna Warsaw Prague Lisbon Dublin".split()
    rows = [
        {"question": f"Which river flows through {city}?", "answer": str(n)} for n, city in enumerate(cities)
    ]
    rows += [{"question": "which river flows through PARIS", "answer": "7"}]
    found = lint(make_run(tmp_path, "a", lambda request: "?", write_task(tmp_path, "rivers", rows)))
    assert found["contradictions"].documents == (10,) and "10 like 1" in found["contradictions"].what
    assert "near-duplicates" not in found


def test_questions_about_the_same_long_text_are_no_duplicates(tmp_path: Path) -> None:
    verbs = "found sold painted burned loved feared".split()
    rows = [
        {
            "text": f"Passage of {name}. " * 200,
            "question": f"Who {verb} the house?",
            "answer": f"{name} {verb}",
        }
        for name in ("Anna", "Bert")
        for verb in verbs
    ]
    rows.append({**rows[4], "question": "who loved the  house"})
    found = lint(make_run(tmp_path, "a", lambda request: "?", write_task(tmp_path, "passages", rows)))
    assert found["near-duplicates"].documents == (12,) and "12 like 4" in found["near-duplicates"].what
    assert "contradictions" not in found
