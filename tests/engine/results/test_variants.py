"""Results of a run with prompt variants: means, intervals, extremes, stability, shared responses, groups and exports."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.making import make_model, write_task

import assay
from assay.core.records.requests import Request
from assay.core.records.responses import LogProbability
from assay.stats.intervals.crossed import crossed_interval
from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import build_results
from assay.viewer.exports.rows import iterate_table_rows, write_jsonl
from assay.viewer.terminal.results_table import format_results

COUNT = 30
WORDS = ["red", "blue", "green", "pink", "grey", "white", "black", "brown"]
ROWS: list[dict[str, Any]] = [
    {"question": f"Number {n}?", "options": [WORDS[(n + k) % 8] for k in range(4)], "answer": n % 4}
    for n in range(COUNT)
]
VARIANTS = [
    {"name": "reversed", "choice_order": "reverse"},
    {"name": "digits", "choice_letters": ["1", "2", "3", "4"]},
    {"name": "again", "description": ""},
    {"name": "short", "doc_to_text": "{{question}} A. {{options[0]}} B. {{options[1]}} C. {{options[2]}} D. {{options[3]}}"},
]  # fmt: skip


def write_colours(folder: Path, name: str = "colours", **keys: Any) -> Path:
    return write_task(
        folder,
        name,
        ROWS,
        **{
            "output_type": "multiple_choice",
            "doc_to_text": "{{question}}\nA. {{options[0]}}\nB. {{options[1]}}\nC. {{options[2]}}\nD. {{options[3]}}\nAnswer:",
            "doc_to_choice": ["A", "B", "C", "D"],
            "doc_to_target": "answer",
            "metric_list": [{"metric": "acc"}],
            "variants": VARIANTS,
            **keys,
        },
    )


def choose_first_or_pink(request: Request) -> LogProbability:
    """Choose `pink` if the prompt lists it, else the choice at the first place."""
    lines = [line for line in request.prompt.text.splitlines() if ". " in line]
    pink = next((at for at, line in enumerate(lines) if line.endswith(". pink")), 0)
    return LogProbability(-1.0 if request.index == pink else -5.0, False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("variants")
    path = write_colours(folder)
    return assay.run(
        model=make_model(choose_first_or_pink),
        tasks=[str(path)],
        no_cache=True,
        output_path=str(folder / "runs"),
    )


def read_scores(run: Run) -> np.ndarray:
    return np.array(
        [
            [value for *_, value in run.journal.read_verdicts(task)]
            for task in run.facts["groups"]["colours"]["members"]
        ]
    ).T


def test_the_task_is_the_mean_over_documents_and_variants(run: Run) -> None:
    scores = read_scores(run)
    (estimate,) = [one for one in run.estimates if one.task == "colours"]
    wanted = crossed_interval(scores)
    assert scores.shape == (COUNT, 5)
    assert estimate.value == pytest.approx(scores.mean())
    assert estimate.interval == pytest.approx((wanted.low, wanted.high))
    assert (estimate.method, estimate.interval_method) == ("crossed", "documents × variants")
    assert (estimate.scored, estimate.failed, estimate.higher_is_better) == (COUNT, 0, True)


def test_each_variant_is_a_task_with_its_own_score(run: Run) -> None:
    scores = read_scores(run)
    names = ["base", "reversed", "digits", "again", "short"]
    for name, column in zip(names, scores.T, strict=True):
        assert run.results[f"colours@{name}"]["acc,none"] == pytest.approx(column.mean())


def test_worst_and_best_variants_and_stability_are_stored(run: Run) -> None:
    (facts,) = run.facts["variants"]
    scores = read_scores(run)
    means = scores.mean(axis=0)
    assert facts["worst"]["value"] == pytest.approx(means.min())
    assert facts["best"]["value"] == pytest.approx(means.max())
    stable = [max(list(row).count(value) for value in row) / 5 for row in scores.tolist()]
    assert facts["stability"] == pytest.approx(sum(stable) / COUNT)
    assert facts["always_the_same"] == stable.count(1.0)
    listed = {one["document"] for one in facts["unstable_documents"]}
    assert {at for at, share in enumerate(stable) if share < 1} <= listed
    assert [one["description"] for one in facts["variants"]][:3] == [
        "unchanged",
        "order reverse",
        "letters 1 2 3 4",
    ]


def test_the_consistency_rate_compares_choices_and_not_letters(run: Run) -> None:
    """`reversed` shows another letter for the same choice, `short` has one line and always gets the first place."""
    (facts,) = run.facts["variants"]

    def answer(row: dict[str, Any], variant: str) -> str:
        options = row["options"][::-1] if variant == "reversed" else row["options"]
        return "pink" if "pink" in options and variant != "short" else options[0]

    names = ["base", "reversed", "digits", "again", "short"]
    pairs = [answer(row, one) == answer(row, other) for row in ROWS for one, other in combinations(names, 2)]
    assert facts["consistency_rate"] == pytest.approx(sum(pairs) / len(pairs))
    assert 0 < facts["consistency_rate"] < 1


def test_responses_are_shared_where_prompts_coincide(run: Run) -> None:
    """`again` has the prompts of `base`; the others differ: 4 prompts of 4 choices each."""
    fingerprints = {
        request["fingerprint"]
        for task in run.facts["groups"]["colours"]["members"]
        for record in run.records(task)
        for request in record["requests"]
    }
    assert len(fingerprints) == 4 * 4 * COUNT
    assert run.journal.count_response_rows() == len(fingerprints)


def test_tables_notes_and_exports_name_the_variants(run: Run) -> None:
    text = format_results(run)
    (facts,) = run.facts["variants"]
    assert "worst – best prompt" in text
    assert f"{facts['worst']['value']:.4f} – {facts['best']['value']:.4f}" in text
    assert f"colours: acc over 5 prompts: worst {facts['worst']['name']}" in text
    assert "  digits: letters 1 2 3 4" in text
    row = next(iterate_table_rows(run, ["colours@digits"]))
    assert (row["task"], row["variant"]) == ("colours@digits", "digits")
    results = build_results(run)
    assert results["variants"] == run.facts["variants"]
    assert results["results"]["colours"]["acc,none"] == pytest.approx(facts["mean"])
    assert results["group_subtasks"]["colours"] == run.facts["groups"]["colours"]["members"]
    assert results["configs"]["colours@digits"]["variant"] == {
        "name": "digits",
        "choice_letters": ["1", "2", "3", "4"],
    }


def test_exported_documents_name_their_variant(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "documents.jsonl"
    with file.open("w", encoding="utf-8") as stream:
        write_jsonl(run, ["colours@short"], stream)
    first = json.loads(file.read_text("utf-8").splitlines()[0])
    assert (first["task"], first["variant"], first["document"]) == ("colours@short", "short", 0)


def test_the_order_and_the_letters_do_not_matter_to_a_model_that_knows_the_answer(workspace: Path) -> None:
    path = write_colours(workspace, variants=None)
    run = assay.run(model="oracle", tasks=[str(path)], vary="order,letters,delimiter,system", no_cache=True)
    (facts,) = run.facts["variants"]
    assert [one["value"] for one in facts["variants"]] == [1.0] * 5
    assert facts["consistency_rate"] == facts["stability"] == 1.0
    assert facts["unstable_documents"] == []


def test_a_group_counts_a_task_with_variants_once(workspace: Path) -> None:
    write_colours(workspace, "one")
    write_colours(workspace, "two", variants=None)
    group = {"group": "both", "task": ["one", "two"], "aggregate_metric_list": [{"metric": "acc"}]}
    (workspace / "both.yaml").write_text(yaml.safe_dump(group))
    run = assay.run(
        model=make_model(choose_first_or_pink), tasks=["both"], include_path=[str(workspace)], no_cache=True
    )
    values = {one.task: one for one in run.estimates}
    assert values["both"].value == pytest.approx((values["one"].value + values["two"].value) / 2)
    assert values["both"].scored == 2 * COUNT
    assert values["both"].interval is not None


def test_shared_prompts_are_not_independent_between_the_tasks_of_a_group(workspace: Path) -> None:
    """Tasks with the same documents: their documents are counted as independent, the spread between prompts is the same."""
    names = ["one", "two", "three", "four"]
    for name in names:
        write_colours(workspace, name, variants=VARIANTS[:2])
    group = {
        "group": "all",
        "task": names,
        "aggregate_metric_list": [{"metric": "acc", "weight_by_size": False}],
    }

    def answer(request: Request) -> LogProbability:
        """Know two thirds of the answers, and only one third with digits."""
        number = int(request.prompt.text.partition("?")[0].split()[-1])
        known = number % 3 == 0 or (number % 3 == 1 and "1. " not in request.prompt.text)
        word = WORDS[(number + number % 4) % 8] if known else "none"
        lines = [line for line in request.prompt.text.splitlines() if ". " in line]
        return LogProbability(
            -1.0 if lines[request.index].endswith(f". {word}") else -5.0 - request.index, False
        )

    (workspace / "all.yaml").write_text(yaml.safe_dump(group))
    run = assay.run(model=make_model(answer), tasks=["all"], include_path=[str(workspace)], no_cache=True)
    values = {one.task: one for one in run.estimates}
    facts = next(one for one in run.facts["variants"] if one["task"] == "one")
    found, spread = values["all"], facts["variant_deviation"] ** 2 / 3
    assert facts["variant_deviation"] > 0.01
    assert found.value == pytest.approx(values["one"].value)
    assert found.stderr is not None and found.stderr**2 > spread
    means = [one["value"] for one in facts["variants"]]
    reaction = 3 * (np.var(means, ddof=1) / 3 - spread)
    shared = (np.var(means, ddof=1) - reaction / 4) / 3
    assert found.stderr**2 == pytest.approx(facts["document_stderr"] ** 2 / 4 + shared)
    assert found.interval_method == "stratified, documents × variants"
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] > 2 * 4.3 * np.sqrt(shared)


def test_metrics_that_are_no_means_have_a_mean_over_prompts_and_no_interval(workspace: Path) -> None:
    path = write_colours(workspace, metric_list=[{"metric": "mcc"}])
    model = make_model(choose_first_or_pink)
    run = assay.run(model=model, tasks=[str(path)], no_cache=True, bootstrap_iters=10)
    (estimate,) = [one for one in run.estimates if one.task == "colours"]
    parts = [
        run.results[f"colours@{one['name']}"]["mcc,none"] for one in run.facts["variants"][0]["variants"]
    ]
    assert estimate.value == pytest.approx(sum(parts) / 5)
    assert estimate.interval is None and estimate.stderr is None


def test_generated_letters_are_compared_in_the_original_order(workspace: Path) -> None:
    rows = [{**row, "letter": "ABCD"[row["answer"]]} for row in ROWS]
    path = write_task(
        workspace,
        "letters",
        rows,
        doc_to_text="{{question}}\nA. {{options[0]}}\nB. {{options[1]}}\nC. {{options[2]}}\nD. {{options[3]}}\nAnswer:",
        doc_to_target="letter",
        metric_list=[{"metric": "exact_match"}],
        variants=[{"name": "reversed", "choice_order": "reverse"}],
    )
    run = assay.run(model=make_model(lambda request: "A"), tasks=[str(path)], no_cache=True)
    assert run.facts["variants"][0]["consistency_rate"] == 0.0  # the first place is another choice
    right = assay.run(model="oracle", tasks=[str(path)], no_cache=True)
    assert right.facts["variants"][0]["consistency_rate"] == 1.0
