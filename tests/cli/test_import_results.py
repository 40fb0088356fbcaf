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
from assay.engine.results.import_results import import_results
from assay.viewer.exports.lmms_eval import write_lmms_eval

DATE = "2026-01-02T03-04-05.678901"


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
    with pytest.raises(UnknownName, match=r"contains no results|does not exist"):
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
