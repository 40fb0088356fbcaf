"""`--budget`, `--history` and `--subset`: choose documents, weight them, and keep the choice with the run."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.api import score, verify
from assay.core.errors import AssayError, InvalidOption, UnknownName
from assay.core.records.subsets import SIMPLE, STRATIFIED, DocumentSubset
from assay.store.runs.run import Run

DOCUMENTS = 160

TASK = """task: sums_{name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl, train: {name}.jsonl}}}}
test_split: test
fewshot_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}} level {{{{level}}}} is {{{{answer}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 8}}
metric_list:
  - metric: exact_match
  - metric: bleu
metadata: {{version: 1.0}}
"""
GROUP = """group: sums
task: [sums_first, sums_second]
aggregate_metric_list: [{metric: exact_match, weight_by_size: true}]
"""


def make_model(name: str, skill: float) -> Callable[[Any], str]:
    """Return a model that fails more often the higher the level of a question is."""

    def answer(prompt: Any) -> str:
        words = str(prompt).split()
        level = float(words[-3])
        number = int(hashlib.sha256(f"{name} {words[-5:]}".encode()).hexdigest()[:8], 16) / 16**8
        return words[-1] if number < 1 / (1 + math.exp(12 * (level - skill))) else "wrong"

    answer.__name__ = name
    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tasks, a group, and the runs of five models."""
    place = tmp_path_factory.mktemp("subsets")
    for name, count in (("first", DOCUMENTS), ("second", 40)):
        rows = [
            {"question": f"{name} {number}", "level": number * 37 % 100 / 100, "answer": str(number)}
            for number in range(count)
        ]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (place / f"{name}.yaml").write_text(TASK.format(name=name))
    (place / "sums.yaml").write_text(GROUP)
    for number in range(5):
        evaluate(place, make_model(f"model{number}", 0.2 + 0.15 * number), tasks="first.yaml")
    return place


def evaluate(place: Path, model: Any, *, tasks: str, **options: Any) -> assay.Run:
    return assay.run(
        model=model,
        tasks=[str(place / tasks)],
        include_path=[str(place)],
        output_path=str(place / "runs"),
        no_cache=True,
        bootstrap_iters=10,
        **options,
    )


def list_history(place: Path) -> list[str]:
    return sorted(str(one) for one in (place / "runs").glob("model?-*"))


@pytest.fixture(scope="module")
def subset_run(folder: Path) -> assay.Run:
    return evaluate(
        folder, make_model("new", 0.6), tasks="first.yaml", budget=48, history=list_history(folder)
    )


@pytest.fixture(scope="module")
def full_run(folder: Path) -> assay.Run:
    return evaluate(folder, make_model("new", 0.6), tasks="first.yaml")


def test_the_weighted_subset_estimates_the_score_over_all_documents(
    subset_run: assay.Run, full_run: assay.Run
) -> None:
    estimate, truth = subset_run.estimates[0], full_run.estimates[0]
    assert (estimate.scored, estimate.population) == (48, DOCUMENTS)
    assert estimate.interval is not None and estimate.interval[0] <= truth.value <= estimate.interval[1]
    assert estimate.interval_method == f"weighted, {STRATIFIED}"
    subset = DocumentSubset.from_json(subset_run.facts["spec"]["subset"]["sums_first"])
    scores = {
        document: value
        for _, metric, document, _, value in subset_run.journal.read_verdicts("sums_first")
        if metric == "exact_match"
    }
    weights = subset.weights
    assert sum(weights.values()) == pytest.approx(DOCUMENTS)
    assert estimate.value == pytest.approx(
        sum(weights[one] * score for one, score in scores.items()) / DOCUMENTS
    )


def test_a_metric_that_is_no_mean_has_no_weighted_value(subset_run: assay.Run) -> None:
    found = {one.metric: one for one in subset_run.estimates}
    assert found["bleu"].value is None and "weighted subset" in found["bleu"].why


def test_the_plan_says_what_the_subset_is_worth(folder: Path) -> None:
    plan = assay.plan(
        model=make_model("new", 0.6),
        tasks=[str(folder / "first.yaml")],
        budget=48,
        history=list_history(folder),
    )
    assert plan.documents == 48
    (note,) = [one for one in plan.notes if "weighted" in one]
    assert f"48 of {DOCUMENTS} documents, weighted; {STRATIFIED}" in note
    assert "strata from 5 runs; worth" in note


def test_the_table_and_the_results_file_name_the_subset(subset_run: assay.Run) -> None:
    from assay.viewer.terminal.results_table import format_results

    text = format_results(subset_run)
    assert f"48 of {DOCUMENTS}" in text and f"documents, weighted; {STRATIFIED} from 5 runs" in text
    results = json.loads(subset_run.files[0].read_text())
    assert len(results["subset"]["sums_first"]["weights"]) == 48
    assert any("weighted" in note for note in results["notes"])
    assert results["n-samples"]["sums_first"]["original"] == DOCUMENTS
    assert results["n-samples"]["sums_first"]["effective"] == 48


def test_exports_of_documents_have_their_weights(subset_run: assay.Run) -> None:
    from assay.viewer.exports.rows import iterate_table_rows, write_jsonl

    rows = list(iterate_table_rows(subset_run, ["sums_first"]))
    assert sum(row["weight"] for row in rows) == pytest.approx(DOCUMENTS)
    stream = StringIO()
    write_jsonl(subset_run, ["sums_first"], stream)
    assert json.loads(stream.getvalue().splitlines()[0])["weight"] == rows[0]["weight"]


def test_the_same_command_finds_its_run_and_another_seed_draws_other_documents(
    folder: Path, subset_run: assay.Run
) -> None:
    options: dict[str, Any] = {
        "model": make_model("new", 0.6), "tasks": [str(folder / "first.yaml")], "budget": 48,
        "history": list_history(folder), "bootstrap_iters": 10,
    }  # fmt: skip
    assert assay.plan(**options).run_id == subset_run.id
    assert assay.plan(**options, seed=7).run_id != subset_run.id


def test_a_run_resumes_and_is_rescored_without_its_history(
    folder: Path, subset_run: assay.Run, tmp_path: Path
) -> None:
    moved = tmp_path / "runs" / subset_run.id
    shutil.copytree(subset_run.folder, moved)
    again = assay.resume(moved, model=make_model("new", 0.6))
    assert again.estimates == subset_run.estimates
    scored = score(moved, dry_run=True)
    assert scored.run.estimates[0] == subset_run.estimates[0]
    scored.run.close()
    found = verify(moved)
    assert found.documents == 48 and not [
        one for one in found.changes if one.kind in ("data", "prompts", "scores")
    ]


def test_the_subset_of_a_run_or_of_its_results_file_can_be_evaluated_with_another_model(
    folder: Path, subset_run: assay.Run
) -> None:
    options: dict[str, Any] = {"model": make_model("newer", 0.7), "tasks": [str(folder / "first.yaml")]}
    by_run = assay.plan(**options, subset=str(subset_run.folder))
    by_file = assay.plan(**options, subset=str(subset_run.files[0]))
    assert by_run.run_id == by_file.run_id
    assert by_run.tasks["sums_first"].subset == DocumentSubset.from_json(
        subset_run.facts["spec"]["subset"]["sums_first"]
    )


def test_changed_documents_do_not_fit_the_subset(folder: Path, subset_run: assay.Run, tmp_path: Path) -> None:
    for name in ("first.yaml", "first.jsonl"):
        shutil.copy(folder / name, tmp_path / name)
    path = tmp_path / "first.jsonl"
    path.write_text(path.read_text().replace("first 1", "first one "))
    options: dict[str, Any] = {"model": "dummy", "tasks": [str(tmp_path / "first.yaml")]}
    with pytest.raises(InvalidOption, match="changed since the subset was chosen"):
        assay.plan(**options, subset=str(subset_run.folder))
    path.write_text(path.read_text().splitlines(keepends=True)[0] * 9)
    with pytest.raises(InvalidOption, match="for 160 documents; the task has 9"):
        assay.plan(**options, subset=str(subset_run.folder))


def test_prompts_are_those_of_a_run_of_all_documents(folder: Path) -> None:
    model = make_model("shots", 0.6)
    whole = evaluate(folder, model, tasks="second.yaml", num_fewshot=2)
    part = evaluate(folder, model, tasks="second.yaml", num_fewshot=2, budget=10)
    prompts = {one["document"]: one["requests"][0]["prompt"] for one in whole.records("sums_second")}
    found = {one["document"]: one["requests"][0]["prompt"] for one in part.records("sums_second")}
    assert len(found) == 10
    assert found == {document: prompts[document] for document in found}


def test_without_enough_history_the_sample_is_simple(folder: Path) -> None:
    plan = assay.plan(
        model="dummy", tasks=[str(folder / "first.yaml")], budget=48, history=list_history(folder)[:2]
    )
    subset = plan.tasks["sums_first"].subset
    assert subset is not None and subset.method == SIMPLE and len(subset.sizes) == 1
    assert any(
        "without strata, because they need the scores of 3 different models" in note for note in plan.notes
    )


def test_runs_of_the_history_that_do_not_count_are_listed_with_the_reason(folder: Path) -> None:
    few = evaluate(folder, make_model("few", 0.6), tasks="first.yaml", limit=30)
    other = evaluate(folder, make_model("other", 0.6), tasks="second.yaml")
    plan = assay.plan(
        model=make_model("new", 0.6),
        tasks=[str(folder / "first.yaml")],
        budget=48,
        history=[*list_history(folder), str(few.folder), str(other.folder)],
    )
    (note,) = [one for one in plan.notes if "ignored" in one]
    assert note == (
        f"sums_first: 2 of 7 runs of the history are ignored: {few.id} (scores for 30 of {DOCUMENTS} documents, at least half"
        f" are required), {other.id} (without the task)"
    )


def test_a_forecast_beyond_its_limit_is_not_printed_as_a_gain(folder: Path) -> None:
    """Three models that fail on the same half of the documents: strata have no variance."""

    def answer_half(number: int) -> Callable[[Any], str]:
        def answer(prompt: Any) -> str:
            words = str(prompt).split()
            return words[-1] if float(words[-3]) < 0.5 else "wrong"

        answer.__name__ = f"half{number}"
        return answer

    runs = [evaluate(folder, answer_half(number), tasks="first.yaml") for number in range(3)]
    plan = assay.plan(
        model=make_model("new", 0.6),
        tasks=[str(folder / "first.yaml")],
        budget=48,
        history=[str(run.folder) for run in runs],
    )
    assert any(
        "worth more than 100 (worst more than 100) times as many random documents" in note
        for note in plan.notes
    )


def test_repeat_metrics_have_no_weights_and_are_left_out(folder: Path) -> None:
    options: dict[str, Any] = {"tasks": "first.yaml", "budget": 48, "repeats": 2}
    simple = evaluate(folder, make_model("again", 0.6), **options)
    assert [one["metric"] for one in simple.facts["repeats"]][:1] == ["exact_match"]
    stratified = evaluate(folder, make_model("again", 0.6), **options, history=list_history(folder))
    assert stratified.estimates[0].interval_method == f"weighted, {STRATIFIED}"
    assert not stratified.facts.get("repeats")
    plan = assay.plan(
        model=make_model("again", 0.6),
        tasks=[str(folder / "first.yaml")],
        output_path=str(folder / "runs"),
        budget=48,
        repeats=2,
        history=list_history(folder),
    )
    assert any("sums_first: no metrics of repeated answers" in note for note in plan.notes)


def test_result_files_are_history_too(folder: Path) -> None:
    files = [str(Run(Path(one)).folder) for one in list_history(folder)[:4]]
    sample = next((folder / "runs" / "model4").glob("samples_*.jsonl"))
    plan = assay.plan(
        model="dummy", tasks=[str(folder / "first.yaml")], budget=48, history=[*files, str(sample)]
    )
    subset = plan.tasks["sums_first"].subset
    assert subset is not None and len(subset.history) == 5


@pytest.mark.parametrize("options", [{"budget": 20}, {"subset": "RUN"}])
def test_a_subset_of_a_task_with_several_prompts_is_refused(
    folder: Path, subset_run: assay.Run, options: dict[str, Any]
) -> None:
    given = {key: str(subset_run.folder) if value == "RUN" else value for key, value in options.items()}
    with pytest.raises(InvalidOption, match="needs one prompt per document, and `sums_first` has") as caught:
        evaluate(folder, "dummy", tasks="first.yaml", vary="delimiter", variants=3, **given)
    assert caught.value.where == f"--{next(iter(options))}"
    assert "--variants 1" in (caught.value.hint or "")


def test_a_budget_of_all_documents_is_a_plain_run(folder: Path) -> None:
    plan = assay.plan(model="dummy", tasks=[str(folder / "second.yaml")], budget=40)
    assert plan.tasks["sums_second"].subset is None and plan.documents == 40
    assert plan.run_id == assay.plan(model="dummy", tasks=[str(folder / "second.yaml")]).run_id


def test_a_group_weights_its_tasks_by_all_their_documents(folder: Path) -> None:
    run = evaluate(folder, make_model("new", 0.6), tasks="sums.yaml", budget=20)
    values = {one.task: one for one in run.estimates if one.metric == "exact_match"}
    group = values["sums"]
    expected = (values["sums_first"].value * DOCUMENTS + values["sums_second"].value * 40) / (DOCUMENTS + 40)
    assert group.value == pytest.approx(expected)
    assert (group.scored, group.population) == (40, DOCUMENTS + 40)
    assert group.interval is not None and group.interval[0] < group.value < group.interval[1]
    errors = [
        (values[name].stderr or 0) * size for name, size in (("sums_first", DOCUMENTS), ("sums_second", 40))
    ]
    assert group.stderr == pytest.approx(math.hypot(*errors) / (DOCUMENTS + 40), rel=0.02)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"history": ["x"]}, InvalidOption, "no effect without `budget`"),
        ({"budget": 1}, InvalidOption, "at least two documents"),
        ({"budget": 9, "limit": 5}, InvalidOption, "`budget` and `limit` cannot be used together"),
        ({"budget": 9, "stop_when": "ci<=1"}, InvalidOption, "`budget` and `stop_when`"),
        ({"budget": 9, "history": ["no-such-run"]}, UnknownName, "no runs in"),
        ({"subset": "{broken"}, InvalidOption, "not JSON"),
        ({"subset": '{"sums_second": {"method": "x", "strata": [{}]}}'}, InvalidOption, "malformed"),
        ({"subset": "nothing.json"}, InvalidOption, "cannot read"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_invalid_options_are_explained(
    folder: Path, options: dict[str, Any], error: type[AssayError], message: str
) -> None:
    with pytest.raises(error, match=message):
        assay.plan(model="dummy", tasks=[str(folder / "second.yaml")], **options)
