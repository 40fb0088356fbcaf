"""`assay import`: results of other harnesses as runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Assay
from tests.making import write_choices, write_task, write_texts

import assay
from assay.core.errors import DatasetError, UnknownName
from assay.engine.imports.formats import RESULT_FORMATS
from assay.engine.imports.importer import import_results as import_all
from assay.viewer.exports.lmms_eval import write_lmms_eval

DATE = "2026-01-02T03-04-05.678901"


def import_results(path: str | Path) -> tuple[Path, bool]:
    (stored,) = import_all(path)
    return stored.folder, stored.new


@pytest.fixture
def exported(workspace: Path) -> Path:
    """What lm-eval would have written: tasks of every kind, repeats, two filters."""
    two = [
        {"name": "first", "filter": [{"function": "take_first"}]},
        {"name": "small", "filter": [{"function": "lowercase"}, {"function": "take_first"}]},
    ]
    tasks = [
        write_task(workspace, "sums", repeats=2, filter_list=two),
        write_choices(workspace),
        write_texts(workspace),
    ]
    run = assay.run(model="dummy", tasks=[str(task) for task in tasks], output_path="theirs")
    run.close()
    for journal in Path("theirs").rglob("journal.sqlite"):
        journal.unlink()
    return Path("theirs/dummy")


def samples(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        file.name.partition("_202")[0]: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.rglob("samples_*.jsonl"))
    }


def test_export_of_an_import_is_identical(exported: Path, assay_command: Assay) -> None:
    folder, new = import_results(exported)
    assert new and folder.parent == Path("assay-runs")
    assert assay_command("export", str(folder), "--format", "lm-eval", "-o", "back").code == 0
    assert samples(Path("back")) == samples(exported)
    before, after = (
        json.loads(next(Path(place).rglob("results_*.json")).read_text()) for place in (exported, "back")
    )
    for key in ("results", "n-shot", "higher_is_better", "versions"):
        assert after[key] == before[key], key


def test_imported_run_can_be_listed_compared_and_exported(exported: Path, assay_command: Assay) -> None:
    folder, _ = import_results(exported)
    run = assay.open_run(folder)
    assert (run.model, run.finished, run.complete, list(run.tasks)) == (
        "dummy",
        True,
        True,
        ["choices", "sums", "texts"],
    )
    by_name = {(one.task, one.metric): one for one in run.estimates}
    assert by_name["choices", "acc"].interval is not None and by_name["choices", "acc"].scored == 4
    record = next(iter(run.records("sums")))
    assert [one.get("repeat", 0) for one in record["requests"]] == [0, 1]
    assert all(one["response"] for one in record["requests"])
    run.close()
    compared = assay_command("compare", str(exported), str(folder), "--json")
    assert compared.code == 0, compared.err
    assert all(row["difference"] == 0 for one in json.loads(compared.out) for row in one["rows"])


def test_the_same_files_are_imported_once(exported: Path) -> None:
    first, again = import_results(exported), import_results(exported)
    assert first[0] == again[0] and (first[1], again[1]) == (True, False)
    file = next(exported.glob("samples_sums*"))
    file.write_text(file.read_text().replace('"exact_match": 0.0', '"exact_match": 1.0'))
    assert import_results(exported)[0] != first[0]


def test_lmms_eval_files_are_imported(workspace: Path) -> None:
    run = assay.run(model="dummy", tasks=[str(write_task(workspace, "sums"))])
    write_lmms_eval(run, ["sums"], Path("theirs"))
    folder, _ = import_results("theirs")
    found = assay.open_run(folder)
    assert found.results == run.results
    assert [one["requests"][0]["response"] for one in found.records("sums")] == [
        one["requests"][0]["response"] for one in run.records("sums")
    ]
    assert next(found.records("sums"))["requests"][0]["input_tokens"] == 7
    run.close()
    found.close()


def test_samples_without_results_get_means(exported: Path) -> None:
    folder, _ = import_results(next(exported.glob("samples_choices*")))
    run = assay.open_run(folder)
    (acc,) = [one for one in run.estimates if one.metric == "acc"]
    assert acc.scored == 4 and acc.stderr is not None and acc.interval is not None
    run.close()


def test_failed_import_leaves_no_files(exported: Path) -> None:
    file = next(exported.glob("samples_sums*"))
    lines = file.read_text().splitlines()
    row = json.loads(lines[0])
    row["arguments"] = {"gen_args_0": {}, "gen_args_1": 3}
    file.write_text("\n".join([json.dumps(row), *lines[1:]]))
    with pytest.raises(DatasetError, match="has an unexpected format") as caught:
        import_results(exported)
    assert caught.value.where.endswith(".jsonl")
    assert not [path for path in Path("assay-runs").iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_path_without_results_is_an_error(workspace: Path, place: str) -> None:
    with pytest.raises(UnknownName, match=r"contains no results that Assay can read|does not exist"):
        import_results(place)


@pytest.mark.parametrize("command", ["resume", "score", "verify"])
def test_imported_run_cannot_be_resumed_or_rescored(
    exported: Path, assay_command: Assay, command: str
) -> None:
    folder, _ = import_results(exported)
    called = assay_command(command, str(folder))
    assert called.code == 2 and "was imported" in called.err


def test_the_command_shows_what_it_imported(exported: Path, assay_command: Assay) -> None:
    called = assay_command("import", str(exported), "-o", "mine")
    assert called.code == 0 and "imported: theirs/dummy" in called.out and "exact_match" in called.out
    rows = json.loads(assay_command("import", str(exported), "-o", "mine", "--json").out)
    assert [row["new"] for row in rows] == [False]


@pytest.fixture
def aggregates(exported: Path) -> Path:
    """The run of a results file without samples."""
    alone = Path("alone")
    alone.mkdir()
    file = next(exported.glob("results_*.json"))
    (alone / file.name).write_bytes(file.read_bytes())
    return import_results(alone)[0]


def test_results_without_samples_are_imported_without_documents(aggregates: Path, exported: Path) -> None:
    run, whole = assay.open_run(aggregates), assay.open_run(import_results(exported)[0])
    assert run.tasks_without_documents == ["sums", "choices", "texts"] == [*run.tasks]
    assert run.results == whole.results and all(one.scored for one in run.estimates)
    assert not list(run.records("sums"))
    run.close()
    whole.close()


def test_commands_say_that_there_are_no_documents(
    aggregates: Path, exported: Path, assay_command: Assay
) -> None:
    assert "imported from lm-eval; the files contain aggregate scores only, no documents" in " ".join(
        assay_command("import", "alone").out.split()
    )
    assert "the files contain aggregate scores only" in assay_command("show", str(aggregates)).err
    for command in ("compare", "explain"):
        called = assay_command(command, str(aggregates), str(exported))
        assert called.code == 2 and "aggregate scores only, no documents" in " ".join(called.err.split())
    assert "exact_match" in assay_command("table", str(aggregates), str(exported)).out
    assert assay_command("export", str(aggregates), "--format", "lm-eval", "-o", "back").code == 0
    assert [file.name.partition("_")[0] for file in Path("back").rglob("*.json*")] == ["results"]


def test_documents_with_equal_prompts_keep_their_responses(exported: Path) -> None:
    file = next(exported.glob("samples_sums*"))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row["arguments"] = rows[0]["arguments"]
        row["resps"] = [[f"first {row['doc_id']}", f"second {row['doc_id']}"]]
    file.write_text("\n".join(map(json.dumps, rows)))
    run = assay.open_run(import_results(file)[0])
    responses = [[one["response"] for one in record["requests"]] for record in run.records("sums")]
    run.close()
    assert responses == [[f"first {number}", f"second {number}"] for number in range(6)]


HELM = Path(__file__).parents[1] / "engine" / "imports" / "files" / "helm"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["show", str(HELM), "-n", "1"], "Is 70 even or odd?"),
        (["table", str(HELM)], "exact_match"),
        (["compare", str(HELM), str(HELM)], "no difference between"),
        (["explain", str(HELM), str(HELM)], "exact_match"),
        (["export", str(HELM), "--format", "lm-eval", "-o", "back"], ""),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_take_results_of_other_programs(
    workspace: Path, assay_command: Assay, command: list[str], said: str
) -> None:
    called = assay_command(*command)
    assert called.code == 0, called.err
    assert said in called.out
    assert not Path("assay-runs").exists()


def test_formats_are_listed_and_can_be_forced(workspace: Path, assay_command: Assay) -> None:
    names = [row["format"] for row in json.loads(assay_command("import", "--list_formats", "--json").out)]
    assert names == list(RESULT_FORMATS)
    assert all(f"{name}: " in assay_command("import", "--list_formats").out for name in names)
    rows = json.loads(assay_command("import", str(HELM), "--format", "helm", "--json").out)
    assert [(row["format"], row["new"]) for row in rows] == [("helm", True)]
    forced = assay_command("import", str(HELM), "--format", "lm-eval")
    assert forced.code == 2 and "no samples of lm-eval" in forced.err
    assert assay_command("import").code == 2


def test_values_that_cannot_be_stored_are_an_error_that_names_the_path(exported: Path) -> None:
    for file in exported.rglob("*_*.json*"):
        file.write_text(file.read_text().replace('"acc', '"a\\ud800cc'))
    with pytest.raises(DatasetError, match="unexpected format: UnicodeEncodeError") as caught:
        import_all(exported)
    assert caught.value.where == str(exported) and not list(Path("assay-runs").glob("*"))


RECORDED = HELM.parents[1] / "recorded"


def test_readable_files_beside_damaged_ones_are_imported(workspace: Path, assay_command: Assay) -> None:
    logs = Path("logs")
    logs.mkdir()
    content = (RECORDED / "letters.json").read_text()
    (logs / "a.json").write_text(content[: len(content) // 2])
    (logs / "b.json").write_text(content)
    (logs / "c.eval").write_bytes(b"PK damaged")
    called = assay_command("import", "missing", "logs", "--json")
    assert called.code == 2
    assert [(row["from"], row["new"]) for row in json.loads(called.out)] == [("logs", True)]
    for said in ("`missing` does not exist", "logs/a.json", "logs/c.eval", "3 imports failed"):
        assert said in called.err
    again = assay_command("import", "logs", "missing")
    assert (
        again.code == 2 and "already imported: logs" in again.out and "`missing` does not exist" in again.err
    )
    with pytest.raises(DatasetError, match="not valid JSON"):
        import_all(logs)


def test_a_damaged_record_does_not_prevent_the_import_of_others(exported: Path, assay_command: Assay) -> None:
    folder, _ = import_results(exported)
    assert assay_command("export", str(folder), "--format", "every-eval-ever", "-o", "records").code == 0
    record = next(file for file in sorted(Path("records").rglob("*.json")))
    record.with_name("0.json").write_text(record.read_text()[:-20])
    called = assay_command("import", "records", "-o", "mine", "--json")
    assert called.code == 2 and len(json.loads(called.out)) == 1 and "0.json" in called.err
