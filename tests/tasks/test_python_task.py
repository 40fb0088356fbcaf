from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core.errors import AssayError, DatasetError, InvalidOption, TaskError, UnknownName
from assay.tasks.files.task_loader import load_task

CAPITALS = {"Peru": "Lima", "France": "Paris", "Kenya": "Nairobi"}
ROWS = [{"country": country, "capital": capital} for country, capital in CAPITALS.items()]


def ask(document: dict[str, Any]) -> str:
    return f"The capital of {document['country']} is"


def is_inside(answer: str, target: str) -> float:
    return float(target in answer)


def recite(prompt: str) -> str:
    country = next(name for name in CAPITALS if name in prompt)
    return f"I think {CAPITALS[country]}" if country != "Kenya" else "I think Mombasa"


def remove_opinion(text: str) -> str:
    return text.removeprefix("I think ")


def make_task(**changes: Any) -> assay.Task:
    given = {"name": "capitals", "documents": ROWS, "prompt": ask, "target": "capital", **changes}
    return assay.Task(**given)


def read_scores(run: assay.Run) -> dict[str, Any]:
    return {estimate.metric: estimate.value for estimate in run.estimates}


@pytest.mark.usefixtures("workspace")
def test_functions_and_names_are_prompts_metrics_and_filters() -> None:
    task = make_task(metric=[is_inside, "exact_match"], filters=[remove_opinion, "lowercase"])
    run = assay.run(model=recite, tasks=[task])
    assert read_scores(run) == {"is_inside": 0.0, "exact_match": 0.0}  # `lowercase` changes the answers only
    run = assay.run(model=recite, tasks=make_task(metric=is_inside, filters=[remove_opinion]))
    assert read_scores(run) == {"is_inside": pytest.approx(2 / 3)}
    assert next(record["requests"][0]["prompt"] for record in run.records("capitals")) == ask(ROWS[0])


@pytest.mark.usefixtures("workspace")
def test_a_metric_that_fails_on_every_document_is_a_warning() -> None:
    def misread(document: dict[str, Any], answer: str) -> float:
        return float(document["capital"] == answer)

    with pytest.warns(UserWarning, match="no document of `capitals` has a score: TypeError: .*indices"):
        assay.run(model=recite, tasks=[make_task(metric=misread)])


def test_templates_columns_and_choices() -> None:
    task = make_task(
        prompt="{{country}}:", choices=lambda document: [document["capital"], "Rome"], target=0, num_fewshot=1,
        fewshot=[{"country": "Chile", "capital": "Santiago"}],
    )  # fmt: skip
    run = assay.run(model="oracle", tasks=[task])
    assert read_scores(run) == {"acc": 1.0, "acc_norm": 1.0}
    prompt = next(iter(run.records("capitals")))["requests"][0]["prompt"]
    assert prompt.startswith("Chile: Santiago") and prompt.endswith("Peru:")


@pytest.mark.parametrize("kind", ["pandas", "polars", "datasets", "csv", "generator"])
@pytest.mark.usefixtures("workspace")
def test_documents_come_in_many_forms(kind: str) -> None:
    documents: Any
    if kind == "csv":
        documents = "capitals.csv"
        Path(documents).write_text("country,capital\nPeru,Lima\nFrance,Paris\nKenya,Nairobi\n")
    elif kind == "generator":
        documents = (dict(row) for row in ROWS)
    elif kind == "datasets":
        documents = pytest.importorskip("datasets").Dataset.from_list(ROWS)
    else:
        documents = pytest.importorskip(kind).DataFrame(ROWS)
    run = assay.run(model=recite, tasks=[make_task(documents=documents, metric=is_inside)])
    assert read_scores(run) == {"is_inside": pytest.approx(2 / 3)}
    assert [record["target"] for record in run.records("capitals")] == list(CAPITALS.values())


def test_missing_values_and_numbers_of_a_data_frame_are_json(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": [1, 2], "x": [0.5, None], "day": pandas.to_datetime(["2026-01-02", None])})
    path = make_task(documents=frame).save(tmp_path)
    rows = [json.loads(line) for line in (path.parent / "documents.jsonl").read_text().splitlines()]
    assert rows == [{"n": 1, "x": 0.5, "day": "2026-01-02T00:00:00"}, {"n": 2, "x": None, "day": None}]


@pytest.mark.usefixtures("workspace")
def test_a_dataset_with_images_keeps_them() -> None:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 4), "red")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    documents = datasets.Dataset.from_list([{"image": image, "label": "red"}], features=features)
    task = make_task(documents=documents, prompt="Colour?", target="label", doc_to_image=["image"])
    run = assay.run(model="dummy", tasks=[task])
    assert run.outcomes("capitals") == {"scored": 1}
    assert "image" in str(next(iter(run.records("capitals")))["requests"][0])


@pytest.mark.usefixtures("workspace")
def test_a_dictionary_has_the_keys_of_a_task_file() -> None:
    Path("capitals.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    config = {
        "task": "from_dictionary",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "capitals.jsonl"}},
        "test_split": "test",
        "doc_to_text": ask,
        "doc_to_target": "capital",
        "metric_list": [{"metric": is_inside, "aggregation": "mean", "higher_is_better": True}],
    }
    assert read_scores(assay.run(model=recite, tasks=[config])) == {"is_inside": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    "arguments",
    [
        {"data_files": {"test": "data/a.jsonl"}},
        {"data_files": {"test": ["data/a.jsonl"]}},
        {"data_files": {"test": "data/*.jsonl"}},
        {"data_files": {"test": "a.jsonl"}, "data_dir": "data"},
        {"data_dir": "data"},
    ],
)
def test_a_dictionary_finds_the_data_beside_the_task_file_that_it_includes(
    workspace: Path, arguments: dict[str, Any]
) -> None:
    pytest.importorskip("datasets")
    (workspace / "included" / "data").mkdir(parents=True)
    (workspace / "included" / "data" / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    keys = {"dataset_path": "json", "doc_to_text": "{{country}}", "doc_to_target": "capital"}
    split = {"test_split": "test" if "data_files" in arguments else "train"}
    file = workspace / "included" / "capitals.yaml"
    file.write_text(json.dumps({"task": "capitals", "dataset_kwargs": arguments, **keys, **split}))
    run = assay.run(model="dummy", tasks=[{"task": "mine", "include": str(file)}])
    assert run.outcomes("mine") == {"scored": len(ROWS)}


@pytest.mark.usefixtures("workspace")
def test_a_dictionary_overrides_a_known_task() -> None:
    plain, changed = (
        assay.run(tasks=task, limit=2)
        for task in ("quickstart_addition", {"task": "quickstart_addition", "num_fewshot": 2})
    )
    assert [run.tasks["quickstart_addition"]["n_shot"] for run in (plain, changed)] == [0, 2]
    assert plain.folder != changed.folder


@pytest.mark.usefixtures("workspace")
def test_a_dictionary_that_overrides_an_unknown_task_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="no task is called `quickstart_adition`") as caught:
        assay.run(tasks=[{"task": "quickstart_adition", "num_fewshot": 2}])
    assert "quickstart_addition" in caught.value.hint


def test_another_process_resumes_scores_and_verifies_the_run(workspace: Path) -> None:
    task = make_task(metric=is_inside, filters=[remove_opinion])
    run = assay.run(model="embedded", tasks=[task], limit=2)
    run.close()
    shutil.move("assay-runs", "moved")
    code = (
        "import assay, sys; from assay.api import score, verify\n"
        "run = assay.resume(sys.argv[1]); print(run.results)\n"
        "print(verify(run).changes, verify(run).documents)\n"
        "print(score(run, dry_run=True).run.results == run.results)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"moved/{run.folder.name}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    results, verified, scored = done.stdout.splitlines()
    assert "is_inside,extracted" in results and (verified, scored) == ("() 2", "True")


def test_a_changed_function_is_another_run(workspace: Path) -> None:
    first = assay.run(tasks=[make_task(prompt=lambda document: f"{document['country']}:")])
    again = assay.run(tasks=[make_task(prompt=lambda document: f"{document['country']}:")])
    other = assay.run(tasks=[make_task(prompt=lambda document: f"{document['country']}?")])
    assert first.folder == again.folder != other.folder
    with pytest.raises(InvalidOption, match="cannot continue the run because it changed"):
        assay.resume(first, tasks=[make_task(prompt=lambda document: f"{document['country']}!")])


def test_a_function_that_cannot_be_saved_is_called_and_named(workspace: Path) -> None:
    marks = {"mark": object()}
    task = make_task(prompt=lambda document: f"{document['country']} {len(marks)}")
    run = assay.run(tasks=[task])
    assert next(iter(run.records("capitals")))["requests"][0]["prompt"] == "Peru 1"
    assert assay.resume(run, tasks=[task]).folder == run.folder
    (path,) = workspace.glob("assay-runs/tasks/*/capitals.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "assay", "run", "--tasks", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2 and "is not saved with the run: it uses `marks`" in done.stderr, done.stderr


def test_a_plan_saves_nothing_in_the_folder_of_the_runs(workspace: Path) -> None:
    assert assay.plan(tasks=[make_task()]).documents == 3
    assert not (workspace / "assay-runs").exists()


def test_a_saved_task_is_a_task_file(tmp_path: Path) -> None:
    path = make_task(description="Answer.", filters=[{"function": "regex", "regex_pattern": "(.*)"}]).save(
        tmp_path
    )
    spec = load_task(path)
    assert (spec.name, spec.description, spec.doc_to_target) == ("capitals", "Answer.", "capital")
    assert make_task(description="Answer.").save(tmp_path) != path
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "capitals.yaml",
        "documents.jsonl",
        "functions.py",
    ]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"name": ""}, "a task needs a name"),
        ({"name": "a b\n"}, "name"),
        ({"prompt": 7}, "`prompt` must be a template or a function, not int"),
        ({"filters": "lowercase"}, "`filters` must be a list"),
        ({"filters": [7]}, "a filter must be a name, a mapping with `function`, or a function"),
        ({"metric": 7}, "a metric must be a name or a function"),
        ({"generation_kwarg": {}}, "no key of a task is called `generation_kwarg`"),
        ({"documents": []}, "there are no documents"),
        ({"documents": ["Peru"]}, "document 0 is not a dictionary but str"),
        ({"documents": {"test": ROWS}}, "`documents` is a mapping"),
        ({"documents": 7}, "`documents` must be a list of dictionaries, a data frame or a dataset, not int"),
        (
            {"documents": [{"x": object()}]},
            "column `x` of document 0 has a value that cannot be saved: object",
        ),
        ({"documents": "capitals.docx"}, "unsupported file"),
        ({"metadata": object()}, "`metadata` has a value that a task file cannot contain"),
    ],
)
def test_invalid_arguments_are_errors_with_their_place(
    changes: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises((TaskError, DatasetError, AssayError)) as caught:
        make_task(**changes).save(tmp_path)
    assert what in caught.value.what and caught.value.where.startswith("assay.Task")


def test_an_unknown_key_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName) as caught:
        make_task(num_fewshots=3)
    assert (
        caught.value.hint.startswith("did you mean `num_fewshot`? ") and "assay ls" not in caught.value.hint
    )


@pytest.mark.usefixtures("workspace")
def test_something_else_is_not_a_task() -> None:
    with pytest.raises(InvalidOption, match=r"must be a name, an `assay.Task` or a dictionary, not int"):
        assay.run(tasks=["quickstart_addition", 7])  # type: ignore[list-item]
