"""Exports are read by the packages whose formats they have, and logs that these packages write are imported.

`tests/test_environments.py` runs these tests in an environment with inspect_ai, every-eval-ever and huggingface_hub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.exports.rich_run import make_rich_run

from assay.engine.imports.importer import import_results
from assay.store.runs.run import Run
from assay.viewer.exports.formats import export

pytestmark = [
    pytest.mark.interchange,
    pytest.mark.filterwarnings("ignore"),  # of the packages, about their own code
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = make_rich_run(tmp_path_factory.mktemp("rich"))
    yield found
    found.close()


DIFFERENCES = {
    "aggregate": {
        r"\.(evaluation_id|retrieved_timestamp)": "the time of the conversion",
        r"\.detailed_evaluation_results\.(file_path|checksum)": "the id of the file, and rows with more fields",
        r"\.eval_library\..*": "Assay evaluated the model",
        r"\.source_metadata\.source_name": "Assay evaluated the model",
        r".*\.uncertainty\.confidence_interval\..*": "files of lm-eval have no intervals",
        r".*\.uncertainty\.standard_error\.method": "lm-eval states it only with the aggregation in the task file",
        r".*\.uncertainty\.num_samples": "lm-eval counts documents without a score",
        r".*\.metric_config\.additional_details\.polarity": "the direction of the metric is known",
        r"\.detailed_evaluation_results\.total_rows": "documents without a score have a row",
    },
    "instance": {
        r"\.evaluation_id": "the time of the conversion",
        r"\.token_usage\..*": "files of lm-eval have no usage",
        r"\.output\.reasoning_trace.*": "files of lm-eval have no reasoning",
        r"\.error": "files of lm-eval have no errors",
        r"\.metadata\.assay\..*": "the document, its responses and its outcome",
    },
    "agent": {
        r"\.(interaction_type|messages.*|output.*)": "lm-eval has one turn",
        r"\.evaluation\.(num_turns|tool_calls_count)": "lm-eval has one turn",
        r"\.answer_attribution\[0\]\.(turn_idx|source)": "lm-eval has one turn",
    },
}
"""The fields that differ from those of the converter for lm-eval, and why; `docs/guides/interchange.md` has the same list."""


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from flatten(item, f"{path}[{number}]")
    elif value is not None:
        yield path, value


def find_differences(ours: Any, theirs: Any, *kinds: str) -> list[str]:
    """Return the fields that differ, without those that are listed."""
    allowed = [pattern for kind in kinds for pattern in DIFFERENCES[kind]]
    first, second = dict(flatten(ours)), dict(flatten(theirs))
    return [
        f"{path}: {first.get(path)!r} and {second.get(path)!r}"
        for path in sorted(first.keys() | second.keys())
        if first.get(path) != second.get(path) and not any(re.fullmatch(pattern, path) for pattern in allowed)
    ]


def read_records(folder: Path) -> dict[str, tuple[Any, list[Any]]]:
    found = {}
    for file in folder.glob("*/*/*/*.json"):
        samples = file.with_name(f"{file.stem}_samples.jsonl")
        rows = [json.loads(line) for line in samples.read_text().splitlines()]
        found[file.parts[-4]] = json.loads(file.read_text()), rows
    return found


def test_every_eval_ever_validates_records(run: Any, tmp_path: Path) -> None:
    from every_eval_ever.validator.validate import main

    files = export(run, "every-eval-ever", [], tmp_path)
    assert len(files) == 10
    assert main([str(file) for file in files]) == 0, "neither errors nor warnings"


def test_every_eval_ever_converts_our_lm_eval_files_to_equal_records(run: Any, tmp_path: Path) -> None:
    from every_eval_ever.cli import main

    export(run, "every-eval-ever", [], tmp_path / "ours")
    export(run, "lm-eval", [], tmp_path / "lm_eval")
    source, target = str(tmp_path / "lm_eval"), str(tmp_path / "theirs")
    assert (
        main(["convert", "lm_eval", "--log_path", source, "--output_dir", target, "--include_samples"]) == 0
    )
    ours, theirs = read_records(tmp_path / "ours" / "data"), read_records(tmp_path / "theirs")
    assert set(ours) == set(theirs) == set(run.tasks)
    compared = 0
    for task, (record, rows) in ours.items():
        converted, their_rows = theirs[task]
        assert find_differences(record, converted, "aggregate") == [], task
        known = {(row["sample_id"], row["evaluation_result_id"]): row for row in rows}
        kinds = ("instance", "agent") if task == "counter" else ("instance",)
        for row in their_rows:
            own = known.pop((row["sample_id"], row["evaluation_result_id"]))
            assert find_differences(own, row, *kinds) == [], (task, row["sample_id"])
            compared += 1
        assert all(row["error"] for row in known.values()), "only documents without a score have other rows"
    assert compared > 20


def test_records_that_every_eval_ever_converted_are_imported(run: Any, tmp_path: Path) -> None:
    from every_eval_ever.cli import main

    export(run, "lm-eval", [], tmp_path / "lm_eval")
    source, target = str(tmp_path / "lm_eval"), str(tmp_path / "theirs")
    main(["convert", "lm_eval", "--log_path", source, "--output_dir", target, "--include_samples"])
    (stored,) = import_results(tmp_path / "theirs", tmp_path / "runs")
    back = Run(stored.folder)
    assert {(one.task, one.metric, one.pipeline): one.value for one in back.estimates} == {
        (one.task, one.metric, one.pipeline): one.value for one in run.estimates
    }
    back.close()


def test_every_eval_ever_converts_our_inspect_logs(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from every_eval_ever.cli import main

    monkeypatch.setitem(
        run.facts, "spec", {**run.facts["spec"], "model": "hf"}
    )  # it knows some providers only
    (path,) = export(run, "inspect", ["choices"], tmp_path / "choices.eval")
    target = str(tmp_path / "theirs")
    assert main(["convert", "inspect", "--log_path", str(path), "--output_dir", target]) == 0
    (record,) = (tmp_path / "theirs").glob("*/*/*/*.json")
    scores = [one["score_details"]["score"] for one in json.loads(record.read_text())["evaluation_results"]]
    assert 0.5 in scores


@pytest.mark.parametrize("name", ["inspect", "inspect-json"])
def test_inspect_reads_logs(run: Any, tmp_path: Path, name: str) -> None:
    from inspect_ai.log import read_eval_log

    logs = {}
    for file in export(run, name, [], tmp_path):
        log = read_eval_log(str(file), resolve_attachments=True)
        logs[log.eval.task] = log
    assert set(logs) == set(run.tasks)
    assert all(log.status == "success" for log in logs.values())
    for task, log in logs.items():
        numbers = {score.name: next(iter(score.metrics.values())).value for score in log.results.scores}
        assert numbers == {
            one.metric if one.pipeline == "none" else f"{one.metric},{one.pipeline}": one.value
            for one in run.estimates
            if one.task == task
        }
    sums = {(sample.id, sample.epoch): sample for sample in logs["sums"].samples}
    assert len(sums) == 10 and sums[2, 1].error.message == "server error: 503 <b>down</b>"
    assert [sums[3, epoch].scores["exact_match,strict"].value for epoch in (1, 2)] == [1.0, 0.0]
    assert sums[4, 1].output.message.content[0].reasoning == "one more"
    assert sums[0, 1].model_usage["org/tiny"].total_cost == 0.25
    agent = logs["counter"].samples[1]
    assert [message.role for message in agent.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert agent.messages[1].tool_calls[0].arguments == {"amount": 1}
    assert agent.messages[2].tool_call_id == agent.messages[1].tool_calls[0].id
    (picture,) = logs["pictures"].samples
    assert picture.messages[0].content[0].image.startswith("data:image/png;base64,")


def test_inspect_lists_summaries_and_bundles_logs_for_its_viewer(run: Any, tmp_path: Path) -> None:
    from inspect_ai.log import bundle_log_dir, list_eval_logs, read_eval_log_sample_summaries

    files = export(run, "inspect", [], tmp_path / "logs")
    assert len(list_eval_logs(str(tmp_path / "logs"))) == len(files)
    (sums,) = (file for file in files if "_sums_" in file.name)
    summaries = read_eval_log_sample_summaries(str(sums))
    assert len(summaries) == 10 and sum(one.error is not None for one in summaries) == 2
    bundle_log_dir(str(tmp_path / "logs"), output_dir=str(tmp_path / "bundle"))
    listing = json.loads((tmp_path / "bundle" / "logs" / "listing.json").read_text())
    assert sorted(listing) == sorted(file.name for file in files)
    assert {one["task"] for one in listing.values()} == set(run.tasks)


def test_inspect_computes_the_same_scores_from_our_samples(run: Any, tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log, recompute_metrics

    (path,) = export(run, "inspect", ["choices"], tmp_path / "choices.eval")
    log = read_eval_log(str(path))
    before = {score.name: score.metrics["mean"].value for score in log.results.scores}
    recompute_metrics(log)
    after = {score.name: next(iter(score.metrics.values())).value for score in log.results.scores}
    assert after == before


def test_logs_that_inspect_writes_now_are_imported(tmp_path: Path) -> None:
    from tests.engine.imports.record_inspect_logs import record

    for file in record(tmp_path / "recorded"):
        (stored,) = import_results(file, tmp_path / "runs")
        imported = Run(stored.folder)
        recorded = Path(__file__).parents[1] / "engine" / "imports" / "recorded" / file.name
        (known,) = import_results(recorded, tmp_path / "known")
        expected = Run(known.folder)
        assert [(one.metric, one.value, one.stderr) for one in imported.estimates] == [
            (one.metric, one.value, one.stderr) for one in expected.estimates
        ]
        (task,) = imported.tasks
        assert imported.outcomes(task) == expected.outcomes(task)
        imported.close()
        expected.close()


def test_huggingface_hub_reads_results_and_cards(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml
    from huggingface_hub import ModelCard, eval_result_entries_to_yaml, parse_eval_result_entries

    tasks = run.facts["tasks"]
    config = {**tasks["sums"]["config"], "dataset_path": "openai/gsm8k", "dataset_name": "main"}
    monkeypatch.setitem(run.facts, "tasks", {**tasks, "sums": {**tasks["sums"], "config": config}})
    (file,) = export(run, "hf-eval-results", ["sums"], tmp_path)
    content = yaml.safe_load(file.read_text())
    (entry,) = parse_eval_result_entries(content)
    assert (entry.dataset_id, entry.task_id, entry.value) == ("openai/gsm8k", "main", 1.0)
    assert eval_result_entries_to_yaml([entry]) == content, "nothing is lost"
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: mit\n---\n# Card\n")
    export(run, "model-index", [], card)
    loaded = ModelCard.load(card)
    assert loaded.data.license == "mit" and loaded.data.model_name == "org/tiny"
    assert {(one.task_name, one.metric_type, one.metric_value) for one in loaded.data.eval_results} == {
        (one.task, one.metric, one.value) for one in run.estimates
    }
    loaded.save(tmp_path / "saved.md")
    assert ModelCard.load(tmp_path / "saved.md").data.eval_results == loaded.data.eval_results
    (stored,) = import_results(tmp_path / "saved.md", tmp_path / "runs")
    back = Run(stored.folder)
    assert {(one.task, one.metric, one.value) for one in back.estimates} == {
        (one.task, one.metric, one.value) for one in run.estimates
    }
    back.close()
